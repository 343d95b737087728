(** Tables over a graph: what holds along every edge holds along every way, and so between any two
    records at the length of the shortest one.  No pair that no edge joins is looked at. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Nats Table Check.
Import ListNotations.
Open Scope Z_scope.

(** Lengths are whole numbers of 2^-30. *)
Definition unit : Z := 2 ^ 30.

(** Epsilon times a length, from below. *)
Definition along (num den steps : Z) : Z := num * steps * one / (den * unit).

Definition row_ok (w : list Z) : bool := forallb (Z.leb 0) w && (sum w =? total).

(** Two rows, column by column and both ways, over one edge: its ends, whatever they are called by, and
    its length. *)
Definition edge_ok {A : Type} (num den : Z) (row : A -> list Z) (e : A * A * Z) : bool :=
  let '(i, j, steps) := e in
  let x := exp_low (along num den steps) in
  (0 <=? steps) && row_ok (row i) && row_ok (row j)
  && columns_ok x (row i) (row j) && columns_ok x (row j) (row i).

Definition edges_ok {A : Type} (num den : Z) (row : A -> list Z) (edges : list (A * A * Z)) : bool :=
  (0 <=? num) && (0 <? den) && forallb (edge_ok num den row) edges.

(** Ways over the edges, in either direction, and how long they are. *)
Inductive way {A : Type} (edges : list (A * A * Z)) : A -> A -> Z -> Prop :=
  | stay : forall x, way edges x x 0
  | on : forall x y z steps rest, In (x, y, steps) edges -> way edges y z rest -> way edges x z (steps + rest)
  | back : forall x y z steps rest, In (y, x, steps) edges -> way edges y z rest -> way edges x z (steps + rest).

Definition rate (num den : Z) : R := (IZR num / IZR den)%R.
Definition length_of (steps : Z) : R := (IZR steps / IZR unit)%R.

Section Proof.

Context {A : Type}.
Variables (num den : Z) (row : A -> list Z) (edges : list (A * A * Z)).
Hypothesis accepted : edges_ok num den row edges = true.

Lemma parts : 0 <= num /\ 0 < den /\ (forall e, In e edges -> edge_ok num den row e = true).
Proof.
  unfold edges_ok in accepted. rewrite !andb_true_iff, forallb_forall in accepted.
  destruct accepted as [[H1 H2] H3].
  apply Z.leb_le in H1. apply Z.ltb_lt in H2. repeat split; assumption.
Qed.

Lemma unit_pos : (0 < IZR unit)%R.
Proof. apply IZR_lt. reflexivity. Qed.

Lemma along_low : forall steps, 0 <= steps ->
  0 <= along num den steps /\ (val (along num den steps) <= rate num den * length_of steps)%R.
Proof.
  intros steps Hs. destruct parts as (Hn & Hd & _). unfold along.
  assert (P : 0 < den * unit) by (apply Z.mul_pos_pos; [assumption | reflexivity]).
  split; [apply Z.div_pos; [apply Z.mul_nonneg_nonneg; [nia | assert (Q := one_pos); lia] | exact P]|].
  assert (H := div_one_down (num * steps * one) (den * unit) P).
  rewrite val_times_one in H. eapply Rle_trans; [exact H|]. right.
  rewrite !mult_IZR. unfold rate, length_of. field.
  split; [apply Rgt_not_eq, unit_pos | apply Rgt_not_eq, IZR_lt, Hd].
Qed.

Lemma row_ok_law : forall w, row_ok w = true -> sum w = total /\ (forall v, In v w -> 0 <= v).
Proof.
  intros w H. unfold row_ok in H. apply andb_prop in H. destruct H as [H1 H2].
  apply Z.eqb_eq in H2. rewrite forallb_forall in H1.
  split; [exact H2 | intros v Hv; apply Z.leb_le, H1, Hv].
Qed.

Lemma entry_nonneg : forall w y, row_ok w = true -> 0 <= nth y w 0.
Proof.
  intros w y H. destruct (nth_in_or_default y w 0) as [Hin | ->]; [|lia].
  apply (row_ok_law w H), Hin.
Qed.

Lemma over_edge : forall i j steps y, In (i, j, steps) edges ->
  (IZR (nth y (row i) 0%Z) <= exp (rate num den * length_of steps) * IZR (nth y (row j) 0%Z))%R /\
  (IZR (nth y (row j) 0%Z) <= exp (rate num den * length_of steps) * IZR (nth y (row i) 0%Z))%R.
Proof.
  intros i j steps y Hin. destruct parts as (_ & _ & H). apply H in Hin.
  unfold edge_ok in Hin. rewrite !andb_true_iff in Hin. destruct Hin as [[[[Hs Ri] Rj] H1] H2].
  apply Z.leb_le in Hs. destruct (along_low steps Hs) as [L0 L1]. split.
  - apply ratio_real with (exp_low (along num den steps)) (along num den steps);
      try assumption; [apply entry_nonneg, Rj | reflexivity | apply columns_ok_nth, H1].
  - apply ratio_real with (exp_low (along num den steps)) (along num den steps);
      try assumption; [apply entry_nonneg, Ri | reflexivity | apply columns_ok_nth, H2].
Qed.

Lemma join : forall a b c s t, (a <= exp s * b)%R -> (b <= exp t * c)%R -> (a <= exp (s + t) * c)%R.
Proof.
  intros a b c s t H1 H2. rewrite exp_plus, Rmult_assoc.
  eapply Rle_trans; [exact H1|]. apply Rmult_le_compat_l; [left; apply exp_pos | exact H2].
Qed.

(** Whatever way leads from x to z: along it no weight grows by more than exp (epsilon times its
    length).  The shortest way has the distance for its length. *)
Theorem edges_private : forall x z n, way edges x z n -> forall y : nat,
  (IZR (nth y (row x) 0%Z) <= exp (rate num den * length_of n) * IZR (nth y (row z) 0%Z))%R.
Proof.
  assert (Split : forall s r, (rate num den * length_of (s + r) =
    rate num den * length_of s + rate num den * length_of r)%R).
  { intros s r. unfold length_of. rewrite plus_IZR. field. apply Rgt_not_eq, unit_pos. }
  induction 1 as [x | x m z steps rest Hin _ IH | x m z steps rest Hin _ IH]; intros y.
  - unfold length_of. replace (rate num den * (0 / IZR unit))%R with 0%R
      by (field; apply Rgt_not_eq, unit_pos). rewrite exp_0. lra.
  - rewrite Split. eapply join; [apply (over_edge _ _ _ y Hin) | apply IH].
  - rewrite Split. eapply join; [apply (over_edge _ _ _ y Hin) | apply IH].
Qed.

(** And the row at every end of an edge is a law: weights that are not negative and sum to 2^62. *)
Theorem edges_stochastic : forall i j steps, In (i, j, steps) edges ->
  (sum (row i) = total /\ (forall v, In v (row i) -> 0 <= v)) /\
  (sum (row j) = total /\ (forall v, In v (row j) -> 0 <= v)).
Proof.
  intros i j steps Hin. destruct parts as (_ & _ & H). apply H in Hin.
  unfold edge_ok in Hin. rewrite !andb_true_iff in Hin. destruct Hin as [[[[_ Ri] Rj] _] _].
  split; apply row_ok_law; assumption.
Qed.

End Proof.
