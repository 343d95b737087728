(** A matrix of distances that was given (roads, travel times): besides what the promise needs, it is
    checked that it is a metric, the triangle inequality up to one part in 10^9 as the library has it. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Distance Nats Table Check.
Import ListNotations.
Open Scope Z_scope.

(** Record i carries index i and as many distances as there are records. *)
Fixpoint indexed (i : Z) (size : nat) (l : list record) : bool :=
  match l with
  | [] => true
  | r :: l => (head (fst r) =? i) && Nat.eqb (length (tl (fst r))) size && indexed (i + 1) size l
  end.

(** d(p, r) <= (1 + 1e-9) (step + d(q, r)) for all r, step being d(p, q). *)
Fixpoint triangles (step : Z) (p q : list Z) : bool :=
  match p, q with
  | a :: p, b :: q => (1000000000 * a <=? 1000000001 * (step + b)) && triangles step p q
  | _, _ => true
  end.

Definition given_ok (t : table) : bool :=
  match metric t with
  | Given _ =>
      indexed 0 (records t) (rows t)
      && forallb (fun p => forallb (fun q =>
           triangles (entry (tl (fst p)) (head (fst q))) (tl (fst p)) (tl (fst q))) (rows t)) (rows t)
  | _ => true
  end.

(** What the extracted checker runs. *)
Definition accept (t : table) : bool := check t && given_ok t.

Theorem accept_private : forall t, accept t = true -> private t /\ stochastic t.
Proof.
  intros t H. apply andb_prop in H. destruct H as [H _].
  split; [apply check_private | apply check_stochastic]; exact H.
Qed.

Lemma indexed_nth : forall l i size x, indexed i size l = true -> (x < length l)%nat ->
  head (fst (nth x l ([], []))) = i + Z.of_nat x /\ length (tl (fst (nth x l ([], [])))) = size.
Proof.
  induction l as [|r l IH]; intros i size x H Hx; simpl in Hx; [lia|].
  simpl in H. rewrite !andb_true_iff in H. destruct H as [[H1 H2] H3].
  destruct x as [|x]; simpl nth.
  - apply Z.eqb_eq in H1. apply Nat.eqb_eq in H2. split; [lia | exact H2].
  - destruct (IH (i + 1) size x H3 ltac:(lia)) as [I1 I2]. split; [lia | exact I2].
Qed.

Lemma triangles_entry : forall step p q, triangles step p q = true ->
  forall k, (k < length p)%nat -> (k < length q)%nat ->
  1000000000 * entry p (Z.of_nat k) <= 1000000001 * (step + entry q (Z.of_nat k)).
Proof.
  induction p as [|a p IH]; intros [|b q] H k Hp Hq; cbn [length] in *; try lia.
  cbn [triangles] in H. apply andb_prop in H. destruct H as [H1 H2].
  destruct k as [|k]; cbn [entry].
  - apply Z.leb_le, H1.
  - destruct (Z.of_nat (S k) =? 0) eqn:E; [apply Z.eqb_eq in E; lia|].
    replace (Z.of_nat (S k) - 1) with (Z.of_nat k) by lia. apply IH; [exact H2 | lia | lia].
Qed.

(** The distance of records x and x' is entry x' of row x, and it is a metric up to 1e-9. *)
Theorem given_metric : forall t den, metric t = Given den -> accept t = true ->
  forall x x' x'', (x < records t)%nat -> (x' < records t)%nat -> (x'' < records t)%nat ->
  d t x x' = (IZR (entry (tl (fst (row_of t x))) (Z.of_nat x')) / IZR den)%R /\
  (d t x x'' <= (1 + / 1000000000) * (d t x x' + d t x' x''))%R.
Proof.
  intros t den M H x x' x'' Hx Hx' Hx''. unfold accept in H. apply andb_prop in H.
  destruct H as [C G]. destruct (check_parts t C) as (_ & _ & D & _).
  unfold given_ok in G. rewrite M in G, D. simpl in D. apply andb_prop in G. destruct G as [G1 G2].
  rewrite forallb_forall in G2.
  assert (At : forall y, (y < records t)%nat -> head (fst (row_of t y)) = Z.of_nat y /\
               length (tl (fst (row_of t y))) = records t).
  { intros y Hy. destruct (indexed_nth (rows t) 0 _ y G1 Hy) as [I1 I2]. split; [|exact I2].
    unfold row_of. lia. }
  assert (Dist : forall u v, (v < records t)%nat ->
    d t u v = (IZR (entry (tl (fst (row_of t u))) (Z.of_nat v)) / IZR den)%R).
  { intros u v Hv. unfold d. rewrite M. simpl dist. destruct (At v Hv) as [-> _]. reflexivity. }
  split; [apply Dist, Hx'|]. rewrite !Dist by assumption.
  specialize (G2 (row_of t x) (nth_In _ _ Hx)). rewrite forallb_forall in G2.
  specialize (G2 (row_of t x') (nth_In _ _ Hx')).
  destruct (At x Hx) as [_ L1]. destruct (At x' Hx') as [A2 L2]. rewrite A2 in G2.
  assert (T := triangles_entry _ _ _ G2 x'' ltac:(rewrite L1; exact Hx'') ltac:(rewrite L2; exact Hx'')).
  apply IZR_le in T. rewrite !mult_IZR, plus_IZR in T.
  assert (P : (0 < / IZR den)%R) by (apply Rinv_0_lt_compat, IZR_lt, D).
  unfold Rdiv.
  set (a := IZR (entry _ (Z.of_nat x''))) in *. set (b := IZR (entry _ (Z.of_nat x'))) in *.
  set (c := IZR (entry (tl (fst (row_of t x'))) _)) in *.
  assert (a <= (1 + / 1000000000) * (b + c))%R by lra. nra.
Qed.
