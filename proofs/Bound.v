(** The bound on the loss: weak duality.  Whatever the multipliers are, as long as none is negative,
    the number made of them is at most the loss of every table that is epsilon-mDP. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Distance Nats Table Sums.
Import ListNotations.

(** ** In real numbers *)

Section Duality.
Open Scope R_scope.

Variables (K m : nat) (cost : nat -> nat -> R).

(** A pair (x, x'), a number g, and a multiplier for every output, of z x y <= g z x' y. *)
Record edge := { from : nat; to : nat; growth : R; multiplier : nat -> R }.

(** A table of probabilities that keeps the constraints of some edges. *)
Definition stochastic_table (z : nat -> nat -> R) : Prop :=
  (forall x y, 0 <= z x y) /\ (forall x, (x < K)%nat -> sigma m (z x) = 1).

Definition keeps_edge (z : nat -> nat -> R) (e : edge) : Prop :=
  forall y, z (from e) y <= growth e * z (to e) y.

Definition valid_edge (e : edge) : Prop :=
  (from e < K)%nat /\ (to e < K)%nat /\ (forall y, 0 <= multiplier e y).

(** What an edge adds to the cost of record x and output y. *)
Definition added (e : edge) (x y : nat) : R :=
  (if Nat.eqb (from e) x then multiplier e y else 0)
  - (if Nat.eqb (to e) x then growth e * multiplier e y else 0).

Definition reduced (es : list edge) (x y : nat) : R :=
  cost x y + fold_right (fun e r => added e x y + r) 0 es.

Definition loss (z : nat -> nat -> R) : R := sigma K (fun x => sigma m (fun y => cost x y * z x y)).

Lemma added_nonpositive : forall z e, valid_edge e -> keeps_edge z e ->
  sigma K (fun x => sigma m (fun y => added e x y * z x y)) <= 0.
Proof.
  intros z e (Hf & Ht & Hl) He.
  rewrite (sigma_ext K _ (fun x =>
    (if Nat.eqb (from e) x then sigma m (fun y => multiplier e y * z x y) else 0)
    + (-1) * (if Nat.eqb (to e) x
              then sigma m (fun y => growth e * multiplier e y * z x y) else 0))).
  - rewrite sigma_plus, sigma_scale, !sigma_at by assumption.
    assert (sigma m (fun y => multiplier e y * z (from e) y)
            <= sigma m (fun y => growth e * multiplier e y * z (to e) y)).
    { apply sigma_le. intros y _. specialize (He y). specialize (Hl y). nra. }
    lra.
  - intros x _. unfold added.
    destruct (Nat.eqb (from e) x); destruct (Nat.eqb (to e) x);
      rewrite <- ?sigma_scale, <- ?sigma_plus;
      try (apply sigma_ext; intros; ring).
    + rewrite Rmult_0_r, Rplus_0_r. apply sigma_ext. intros. ring.
    + rewrite Rplus_0_l, <- ?sigma_scale. apply sigma_ext. intros. ring.
    + rewrite Rmult_0_r, Rplus_0_l. rewrite (sigma_ext m _ (fun y => 0 * z x y)).
      * rewrite sigma_scale. ring.
      * intros. ring.
Qed.

(** The sum over records of the least reduced cost is at most the loss of every table that keeps the
    constraints of the edges; edges may be any subset of all pairs. *)
Theorem weak_duality : forall es least z,
  (forall e, In e es -> valid_edge e) -> (forall e, In e es -> keeps_edge z e) ->
  stochastic_table z ->
  (forall x y, (x < K)%nat -> (y < m)%nat -> least x <= reduced es x y) ->
  sigma K least <= loss z.
Proof.
  intros es least z V E (Z0 & Z1) H.
  assert (D : sigma K (fun x => sigma m (fun y => reduced es x y * z x y)) <= loss z).
  { clear H. induction es as [|e es IH].
    - unfold loss. apply sigma_le. intros x _. apply sigma_le. intros y _.
      unfold reduced. simpl. right. ring.
    - rewrite (sigma_ext K _ (fun x => sigma m (fun y => reduced es x y * z x y)
                                     + sigma m (fun y => added e x y * z x y))).
      + rewrite sigma_plus.
        assert (sigma K (fun x => sigma m (fun y => reduced es x y * z x y)) <= loss z).
        { apply IH; intros; [apply V | apply E]; right; assumption. }
        assert (A := added_nonpositive z e (V e (or_introl eq_refl)) (E e (or_introl eq_refl))).
        lra.
      + intros x _. rewrite <- sigma_plus. apply sigma_ext. intros y _.
        unfold reduced. simpl. ring. }
  apply Rle_trans with (2 := D). apply sigma_le. intros x Hx.
  rewrite <- (Rmult_1_r (least x)), <- (Z1 x Hx), <- sigma_scale.
  apply sigma_le. intros y Hy. apply Rmult_le_compat_r; [apply Z0 | apply H; assumption].
Qed.

End Duality.
