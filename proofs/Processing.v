(** What is done to a mechanism that is private already.  X is any set of records with a distance d;
    z x y is the probability of output y for record x; outputs are numbered. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Sums Table Check.
Import ListNotations.
Open Scope R_scope.

(** z is epsilon-mDP. *)
Definition mdp {X Y : Type} (epsilon : R) (d : X -> X -> R) (z : X -> Y -> R) : Prop :=
  forall x x' y, z x y <= exp (epsilon * d x x') * z x' y.

Lemma exp_le : forall a b, a <= b -> exp a <= exp b.
Proof. intros a b [H | ->]; [left; apply exp_increasing, H | right; reflexivity]. Qed.

Section Processing.
Variables (X : Type) (epsilon : R) (d : X -> X -> R) (m : nat) (z : X -> nat -> R).
Hypothesis private : mdp epsilon d z.

(** Post-processing: output y is replaced by a draw o with probability r y o, which may be anything
    that does not look at the record. *)
Theorem post_processing : forall r : nat -> nat -> R, (forall y o, 0 <= r y o) ->
  mdp epsilon d (fun x o => sigma m (fun y => z x y * r y o)).
Proof.
  intros r Hr x x' o. rewrite <- sigma_scale. apply sigma_le. intros y _.
  rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [apply Hr | apply private].
Qed.

(** Remap: output y is replaced by f y. *)
Theorem remap : forall f : nat -> nat,
  mdp epsilon d (fun x o => sigma m (fun y => if Nat.eqb (f y) o then z x y else 0)).
Proof.
  intros f x x' o. rewrite <- sigma_scale. apply sigma_le. intros y _.
  destruct (Nat.eqb (f y) o); [apply private | lra].
Qed.

(** Mixing in a share a of one row q that is the same for all records (the uniform row of [release],
    the floor of [optimal]). *)
Theorem mixing : forall a q, 0 <= a <= 1 -> (forall y, 0 <= q y) ->
  0 <= epsilon -> (forall x x', 0 <= d x x') ->
  mdp epsilon d (fun x y => (1 - a) * z x y + a * q y).
Proof.
  intros a q Ha Hq He Hd x x' y. rewrite Rmult_plus_distr_l.
  assert (One : 1 <= exp (epsilon * d x x')).
  { rewrite <- exp_0. apply exp_le, Rmult_le_pos; auto. }
  assert (H := private x x' y). assert (Q := Hq y).
  assert ((1 - a) * z x y <= (1 - a) * (exp (epsilon * d x x') * z x' y))
    by (apply Rmult_le_compat_l; lra).
  assert (0 <= a * q y) by (apply Rmult_le_pos; lra). nra.
Qed.

(** Snapping: places of a larger space take the row of a record nearby.  What was epsilon d between
    records is epsilon (d + 2 limit) between places. *)
Theorem snapping : forall (P : Type) (D : P -> P -> R) (at_ : X -> P) (snap : P -> X) (limit : R),
  (forall x x', d x x' = D (at_ x) (at_ x')) ->
  (forall p q r, D p r <= D p q + D q r) -> (forall p q, D p q = D q p) ->
  (forall p, D p (at_ (snap p)) <= limit) -> 0 <= epsilon ->
  (forall x y, 0 <= z x y) ->
  forall p p' y, z (snap p) y <= exp (epsilon * (D p p' + 2 * limit)) * z (snap p') y.
Proof.
  intros P D at_ snap limit Same Tri Sym Near He Z0 p p' y.
  apply Rle_trans with (1 := private (snap p) (snap p') y).
  apply Rmult_le_compat_r; [apply Z0|]. apply exp_le, Rmult_le_compat_l; [exact He|].
  rewrite Same.
  generalize (Tri (at_ (snap p)) p (at_ (snap p'))) (Tri p p' (at_ (snap p'))) (Near p) (Near p').
  rewrite (Sym (at_ (snap p)) p). lra.
Qed.

End Processing.

(** Composition, for every pair by itself: two reports, the second of which may depend on the first,
    cost the sum of what each costs for this pair. *)
Theorem composition : forall (X Y Y' : Type) (a b : X -> X -> R)
  (z : X -> Y -> R) (z' : Y -> X -> Y' -> R),
  (forall x y, 0 <= z x y) -> (forall y x y', 0 <= z' y x y') ->
  (forall x x' y, z x y <= exp (a x x') * z x' y) ->
  (forall y x x' y', z' y x y' <= exp (b x x') * z' y x' y') ->
  forall x x' y y', z x y * z' y x y' <= exp (a x x' + b x x') * (z x' y * z' y x' y').
Proof.
  intros X Y Y' a b z z' Z0 Z0' H H' x x' y y'. rewrite exp_plus.
  replace (exp (a x x') * exp (b x x') * (z x' y * z' y x' y'))
    with (exp (a x x') * z x' y * (exp (b x x') * z' y x' y')) by ring.
  apply Rmult_le_compat; auto.
Qed.

(** Many reports, each about a record of its own (a trajectory; one record n times is one): one entry
    of the list is the probability under each of the two, and what the pair costs. *)
Theorem trajectory : forall reports : list (R * R * R),
  (forall p p' c, In (p, p', c) reports -> 0 <= p /\ 0 <= p' /\ p <= exp c * p') ->
  fold_right (fun r acc => fst (fst r) * acc) 1 reports
  <= exp (fold_right (fun r acc => snd r + acc) 0 reports)
     * fold_right (fun r acc => snd (fst r) * acc) 1 reports.
Proof.
  induction reports as [|[[p p'] c] reports IH]; intro H; simpl; [rewrite exp_0; lra|].
  destruct (H p p' c (or_introl eq_refl)) as (P & P' & C).
  assert (N : 0 <= fold_right (fun r acc => fst (fst r) * acc) 1 reports).
  { clear IH C. assert (G : forall q q' e, In (q, q', e) reports -> 0 <= q)
      by (intros q q' e Hin; destruct (H q q' e (or_intror Hin)); assumption).
    clear H. induction reports as [|[[q q'] e] reports IH]; simpl; [lra|].
    apply Rmult_le_pos; [apply (G q q' e); left; reflexivity|].
    apply IH. intros; eapply G; right; eassumption. }
  assert (I := IH (fun q q' e Hin => H q q' e (or_intror Hin))).
  rewrite exp_plus.
  set (u := fold_right (fun r acc => fst (fst r) * acc) 1 reports) in *.
  set (v := fold_right (fun r acc => snd (fst r) * acc) 1 reports) in *.
  set (s := fold_right (fun r acc => snd r + acc) 0 reports) in *.
  replace (exp c * exp s * (p' * v)) with (exp c * p' * (exp s * v)) by ring.
  apply Rmult_le_compat; assumption.
Qed.

(** ** The prior *)

(** A table may be made from data about people in any way.  If whatever is made is checked, a report
    is private whatever the data were: the promise of the table does not rest on the prior. *)
Theorem prior_is_free : forall (Data : Type) (make : Data -> table),
  (forall data, check (make data) = true) -> forall data, private (make data).
Proof. intros Data make H data. apply check_private, H. Qed.

(** Where the prior was made differentially private (a data): what is seen is the prior and a report;
    the person behind both spends the sum. *)
Theorem private_prior : forall (Data Prior X Y : Type) (neighbours : Data -> Data -> Prop)
  (a : Data -> Prior -> R) (spent epsilon : R) (d : X -> X -> R) (z : Prior -> X -> Y -> R),
  (forall D pi, 0 <= a D pi) -> (forall pi x y, 0 <= z pi x y) ->
  (forall D D' pi, neighbours D D' -> a D pi <= exp spent * a D' pi) ->
  (forall pi, mdp epsilon d (z pi)) ->
  forall D D' x x' pi y, neighbours D D' ->
  a D pi * z pi x y <= exp (spent + epsilon * d x x') * (a D' pi * z pi x' y).
Proof.
  intros Data Prior X Y nb a spent epsilon d z A0 Z0 HA HZ D D' x x' pi y N.
  rewrite exp_plus.
  replace (exp spent * exp (epsilon * d x x') * (a D' pi * z pi x' y))
    with (exp spent * a D' pi * (exp (epsilon * d x x') * z pi x' y)) by ring.
  apply Rmult_le_compat; auto. apply HZ.
Qed.

(** The noise of a private prior: discrete Laplace on counts.  If one person moves the counts by at
    most c in all, no outcome is more than e^spent times as likely; the norming constants are equal. *)
Fixpoint moved (a b : list Z) : Z :=
  match a, b with
  | x :: a, y :: b => (Z.abs (x - y) + moved a b)%Z
  | _, _ => 0%Z
  end.

Theorem discrete_laplace : forall (spent : R) (c : Z) (counts counts' seen : list Z),
  0 <= spent -> (0 < c)%Z -> length counts = length counts' -> length seen = length counts ->
  (moved counts counts' <= c)%Z ->
  exp (- (spent / IZR c) * IZR (moved seen counts))
  <= exp spent * exp (- (spent / IZR c) * IZR (moved seen counts')).
Proof.
  intros spent c a b s Hs Hc L1 L2 H. rewrite <- exp_plus. apply exp_le.
  assert (T : (moved s b <= moved s a + moved a b)%Z).
  { clear H. revert b s L1 L2. induction a as [|x a IH]; intros [|y b] [|k s] L1 L2;
      simpl in *; try discriminate; try lia. specialize (IH b s ltac:(lia) ltac:(lia)). lia. }
  assert (C : 0 < IZR c) by (apply IZR_lt, Hc).
  assert (Q : 0 <= spent / IZR c)
    by (apply Rmult_le_pos; [exact Hs | left; apply Rinv_0_lt_compat, C]).
  assert (IZR (moved s b) <= IZR (moved s a) + IZR c) by (rewrite <- plus_IZR; apply IZR_le; lia).
  assert (E : spent / IZR c * IZR c = spent) by (field; lra).
  nra.
Qed.
