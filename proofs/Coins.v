(** Coins: every candidate a is selected with probability w_a by itself, and the user reports from the row
    of an anchor that depends on the set that came of it.  The set is seen, and the report. *)

From Coq Require Import Reals Lra Lia List Bool.
From Panda Require Import Sums Processing Balls.
Import ListNotations.
Open Scope R_scope.

(** The probability of a set, told as one flag for each candidate. *)
Fixpoint chance (w : list R) (set : list bool) : R :=
  match w, set with
  | p :: w, true :: set => p * chance w set
  | p :: w, false :: set => (1 - p) * chance w set
  | _, _ => 1
  end.

Definition coins (w : list R) : Prop := forall p, In p w -> 0 <= p <= 1.

Lemma chance_nonneg : forall w set, coins w -> 0 <= chance w set.
Proof.
  induction w as [|p w IH]; intros [|f set] C; simpl; try lra; try (destruct f; lra).
  assert (I : 0 <= chance w set) by (apply IH; intros q Hq; apply C; right; exact Hq).
  destruct (C p (or_introl eq_refl)). destruct f; apply Rmult_le_pos; lra.
Qed.

(** What the coins of two records tell: for each candidate a number l with w <= e^l w' and
    1 - w <= e^l (1 - w'); their sum bounds the ratio of every set. *)
Fixpoint tells (w w' l : list R) : Prop :=
  match w, w', l with
  | p :: w, q :: w', c :: l => p <= exp c * q /\ 1 - p <= exp c * (1 - q) /\ tells w w' l
  | [], [], [] => True
  | _, _, _ => False
  end.

Fixpoint total_l (l : list R) : R := match l with [] => 0 | c :: l => c + total_l l end.

Theorem coins_ratio : forall w w' l set, coins w -> coins w' -> tells w w' l ->
  chance w set <= exp (total_l l) * chance w' set.
Proof.
  induction w as [|p w IH]; intros [|q w'] [|c l] set C C' T; simpl in T; try contradiction.
  - simpl. rewrite exp_0. destruct set; lra.
  - destruct T as (T1 & T2 & T).
    assert (CW : coins w) by (intros x Hx; apply C; right; exact Hx).
    assert (CW' : coins w') by (intros x Hx; apply C'; right; exact Hx).
    assert (N : 0 <= chance w [] ) by (apply chance_nonneg, CW).
    destruct (C p (or_introl eq_refl)). destruct (C' q (or_introl eq_refl)).
    destruct set as [|f set].
    + simpl. specialize (IH w' l [] CW CW' T).
      assert (E0 : chance w [] = 1) by (destruct w; reflexivity).
      assert (E1 : chance w' [] = 1) by (destruct w'; reflexivity).
      rewrite E0, E1 in IH. rewrite exp_plus.
      assert (1 <= exp c).
      { assert (X := exp_pos c). nra. }
      assert (X := exp_pos (total_l l)). nra.
    + specialize (IH w' l set CW CW' T).
      assert (P0 := chance_nonneg w set CW). assert (P1 := chance_nonneg w' set CW').
      simpl chance. simpl total_l. rewrite exp_plus.
      destruct f.
      * replace (exp c * exp (total_l l) * (q * chance w' set))
          with (exp c * q * (exp (total_l l) * chance w' set)) by ring.
        apply Rmult_le_compat; try assumption.
      * replace (exp c * exp (total_l l) * ((1 - q) * chance w' set))
          with (exp c * (1 - q) * (exp (total_l l) * chance w' set)) by ring.
        apply Rmult_le_compat; try assumption; lra.
Qed.

(** The guarantee of both phases.  [sets] are the sets that can come of it, S number s of them; x reports
    from row T s, x' from row T' s.  A set is safe where the two rows differ by at most e^(k - L), L what
    the coins tell.  Then what differs by more than e^k, either way, has at most the probability of the
    sets that are not safe. *)
Section Guarantee.
Variables (sets : nat -> list bool) (n m : nat) (w w' l : list R) (T T' : nat -> nat -> R) (k : R).
Hypotheses (C : coins w) (C' : coins w') (L : tells w w' l) (L' : tells w' w l).
Hypotheses (T0 : forall s y, 0 <= T s y) (T0' : forall s y, 0 <= T' s y).
Hypothesis T1 : forall s, sigma m (T s) = 1.
Variable safe : nat -> bool.
Hypothesis rows_near : forall s y, safe s = true ->
  T s y <= exp (k - total_l l) * T' s y /\ T' s y <= exp (k - total_l l) * T s y.

Theorem coins_guarantee :
  sigma n (fun s => sigma m (fun y =>
    if far k (chance w (sets s) * T s y) (chance w' (sets s) * T' s y) then chance w (sets s) * T s y else 0))
  <= sigma n (fun s => if safe s then 0 else chance w (sets s)).
Proof.
  apply sigma_le. intros s _. assert (P := chance_nonneg w (sets s) C).
  assert (P' := chance_nonneg w' (sets s) C').
  destruct (safe s) eqn:S.
  - rewrite (sigma_ext m _ (fun y => 0 * T s y)); [rewrite sigma_scale; lra|].
    intros y _. replace (far k _ _) with false; [ring|]. symmetry. apply near.
    destruct (rows_near s y S) as [R1 R2].
    assert (E : exp k = exp (total_l l) * exp (k - total_l l)) by (rewrite <- exp_plus; f_equal; ring).
    rewrite E. split.
    + replace (exp (total_l l) * exp (k - total_l l) * (chance w' (sets s) * T' s y))
        with (exp (total_l l) * chance w' (sets s) * (exp (k - total_l l) * T' s y)) by ring.
      apply Rmult_le_compat; auto. apply coins_ratio; assumption.
    + replace (exp (total_l l) * exp (k - total_l l) * (chance w (sets s) * T s y))
        with (exp (total_l l) * chance w (sets s) * (exp (k - total_l l) * T s y)) by ring.
      apply Rmult_le_compat; auto. apply coins_ratio; assumption.
  - apply Rle_trans with (sigma m (fun y => chance w (sets s) * T s y)).
    + apply sigma_le. intros y _. assert (0 <= chance w (sets s) * T s y) by (apply Rmult_le_pos; auto).
      destruct (far _ _ _); lra.
    + rewrite sigma_scale, T1. lra.
Qed.

End Guarantee.
