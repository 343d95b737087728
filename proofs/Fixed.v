(** Numbers.  The checker computes with whole numbers only; a whole number [z] stands for the real
    number z / 2^128.  This file says what that means and bounds exp from both sides. *)

From Coq Require Import ZArith Reals Lra Lia.
Open Scope Z_scope.

Definition one : Z := 2 ^ 128.

(** The real number that a whole number stands for. *)
Definition val (z : Z) : R := (IZR z / IZR one)%R.

(** A product of two such numbers, rounded down. *)
Definition times (a b : Z) : Z := Z.shiftr (a * b) 128.

(** Division rounded up ([Z.div] rounds down). *)
Definition div_up (a b : Z) : Z := - ((- a) / b).

Lemma one_pos : 0 < one.
Proof. reflexivity. Qed.

Lemma one_real : (0 < IZR one)%R.
Proof. apply IZR_lt, one_pos. Qed.

#[global] Opaque one.

Lemma val_one : val one = 1%R.
Proof. unfold val. field. apply Rgt_not_eq, one_real. Qed.

Lemma val_le : forall a b, a <= b -> (val a <= val b)%R.
Proof.
  intros a b H. apply Rmult_le_compat_r.
  - left. apply Rinv_0_lt_compat, one_real.
  - apply IZR_le, H.
Qed.

Lemma val_nonneg : forall a, 0 <= a -> (0 <= val a)%R.
Proof. intros a H. replace 0%R with (val 0) by (unfold val; lra). apply val_le, H. Qed.

Lemma val_plus : forall a b, val (a + b) = (val a + val b)%R.
Proof. intros. unfold val. rewrite plus_IZR. lra. Qed.

Lemma val_minus : forall a b, val (a - b) = (val a - val b)%R.
Proof. intros. unfold val. rewrite minus_IZR. lra. Qed.

Lemma val_opp : forall a, val (- a) = (- val a)%R.
Proof. intros. unfold val. rewrite opp_IZR. lra. Qed.

Lemma val_scale : forall k a, val (k * a) = (IZR k * val a)%R.
Proof. intros. unfold val. rewrite mult_IZR. lra. Qed.

Lemma IZR_val : forall a, IZR a = (val a * IZR one)%R.
Proof. intros. unfold val. field. apply Rgt_not_eq, one_real. Qed.

(** Division of whole numbers, rounded down and up, against division of reals. *)
Lemma div_down_le : forall a b, 0 < b -> (IZR (a / b) <= IZR a / IZR b)%R.
Proof.
  intros a b Hb. assert (Rb : (0 < IZR b)%R) by (apply IZR_lt; lia).
  apply Rmult_le_reg_r with (IZR b); [exact Rb|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. rewrite Rmult_1_r, <- mult_IZR.
  apply IZR_le. rewrite Z.mul_comm. apply Z.mul_div_le, Hb.
Qed.

Lemma div_up_ge : forall a b, 0 < b -> (IZR a / IZR b <= IZR (div_up a b))%R.
Proof.
  intros a b Hb. unfold div_up. rewrite opp_IZR.
  generalize (div_down_le (- a) b Hb). rewrite opp_IZR. unfold Rdiv. lra.
Qed.

Lemma div_down_succ : forall a b, 0 < b -> (IZR a / IZR b <= IZR (a / b + 1))%R.
Proof.
  intros a b Hb. assert (Rb : (0 < IZR b)%R) by (apply IZR_lt; lia).
  apply Rmult_le_reg_r with (IZR b); [exact Rb|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. rewrite Rmult_1_r, <- mult_IZR.
  apply IZR_le. generalize (Z.mul_succ_div_gt a b Hb). lia.
Qed.

Lemma times_le : forall a b, (val (times a b) <= val a * val b)%R.
Proof.
  intros a b. unfold times. rewrite Z.shiftr_div_pow2 by lia. change (2 ^ 128) with one.
  unfold val. generalize (div_down_le (a * b) one one_pos). rewrite mult_IZR. intro H.
  apply Rmult_le_compat_r with (r := (/ IZR one)%R) in H.
  - unfold Rdiv in *. lra.
  - left. apply Rinv_0_lt_compat, one_real.
Qed.

Lemma times_succ : forall a b, (val a * val b <= val (times a b + 1))%R.
Proof.
  intros a b. unfold times. rewrite Z.shiftr_div_pow2 by lia. change (2 ^ 128) with one.
  unfold val. generalize (div_down_succ (a * b) one one_pos). rewrite mult_IZR. intro H.
  apply Rmult_le_compat_r with (r := (/ IZR one)%R) in H.
  - unfold Rdiv in *. lra.
  - left. apply Rinv_0_lt_compat, one_real.
Qed.

Lemma times_nonneg : forall a b, 0 <= a -> 0 <= b -> 0 <= times a b.
Proof. intros. unfold times. apply Z.shiftr_nonneg. nia. Qed.

(** ** The exponential function
    exp(r) >= 1 + r for every r; with r = l / 2^64 and 64 squarings this is within 1e-16 of exp(l).
    Beyond 128 nats, e^128 > 2^184, nothing more is asked of it, and numbers stay short. *)

Fixpoint squares (n : nat) (a : Z) : Z :=
  match n with
  | O => a
  | S k => squares k (times a a)
  end.

Definition exp_low (l : Z) : Z := squares 64 (one + Z.shiftr (Z.min l (128 * one)) 64).

(** A lower bound on exp(-l); 0 where l is too large to say more. *)
Definition exp_neg_low (l : Z) : Z := squares 64 (Z.max 0 (one - (Z.shiftr l 64 + 1))).

Lemma squares_le : forall n a r, 0 <= a -> (val a <= exp r)%R ->
  0 <= squares n a /\ (val (squares n a) <= exp (2 ^ n * r))%R.
Proof.
  induction n as [|n IH]; intros a r Ha H; simpl squares.
  - split; [exact Ha|]. simpl. rewrite Rmult_1_l. exact H.
  - replace (2 ^ S n * r)%R with (2 ^ n * (r + r))%R by (simpl; lra).
    apply IH; [apply times_nonneg; lia|].
    rewrite exp_plus. apply Rle_trans with (val a * val a)%R; [apply times_le|].
    apply Rmult_le_compat; try exact H; apply val_nonneg, Ha.
Qed.

Lemma shift64_le : forall l, (val (Z.shiftr l 64) <= val l / 2 ^ 64)%R.
Proof.
  intro l. rewrite Z.shiftr_div_pow2 by lia. unfold val.
  generalize (div_down_le l (2 ^ 64) ltac:(lia)).
  replace (IZR (2 ^ 64)) with (2 ^ 64)%R by (rewrite (pow_IZR 2 64); reflexivity).
  intro H. apply Rmult_le_compat_r with (r := (/ IZR one)%R) in H.
  - unfold Rdiv in *. lra.
  - left. apply Rinv_0_lt_compat, one_real.
Qed.

Lemma shift64_succ : forall l, (val l / 2 ^ 64 <= val (Z.shiftr l 64 + 1))%R.
Proof.
  intro l. rewrite Z.shiftr_div_pow2 by lia. unfold val.
  generalize (div_down_succ l (2 ^ 64) ltac:(lia)).
  replace (IZR (2 ^ 64)) with (2 ^ 64)%R by (rewrite (pow_IZR 2 64); reflexivity).
  intro H. apply Rmult_le_compat_r with (r := (/ IZR one)%R) in H.
  - unfold Rdiv in *. lra.
  - left. apply Rinv_0_lt_compat, one_real.
Qed.

(** What [exp_low] returns is at most exp, for every l >= 0. *)
Theorem exp_low_le : forall l, 0 <= l -> 0 <= exp_low l /\ (val (exp_low l) <= exp (val l))%R.
Proof.
  intros k Hk. unfold exp_low. assert (P := one_pos).
  set (l := Z.min k (128 * one)). assert (Hl : 0 <= l) by (unfold l; lia).
  assert (Le : (exp (val l) <= exp (val k))%R).
  { destruct (val_le l k ltac:(unfold l; lia)) as [H | ->];
      [left; apply exp_increasing, H | right; reflexivity]. }
  assert (Hs : 0 <= Z.shiftr l 64) by (apply Z.shiftr_nonneg; lia).
  destruct (squares_le 64 (one + Z.shiftr l 64) (val l / 2 ^ 64)) as [H0 H].
  - generalize one_pos. lia.
  - rewrite val_plus, val_one. apply Rle_trans with (1 + val l / 2 ^ 64)%R.
    + generalize (shift64_le l). lra.
    + apply exp_ineq1_le.
  - split; [exact H0|].
    replace (2 ^ 64 * (val l / 2 ^ 64))%R with (val l) in H; [lra|].
    field.
Qed.

(** What [exp_neg_low] returns is at most exp(-l). *)
Theorem exp_neg_low_le : forall l,
  0 <= exp_neg_low l /\ (val (exp_neg_low l) <= exp (- val l))%R.
Proof.
  intros l. unfold exp_neg_low.
  destruct (squares_le 64 (Z.max 0 (one - (Z.shiftr l 64 + 1))) (- val l / 2 ^ 64)) as [H0 H].
  - lia.
  - destruct (Z.max_spec 0 (one - (Z.shiftr l 64 + 1))) as [[_ ->] | [_ ->]].
    + rewrite val_minus, val_one. apply Rle_trans with (1 + - val l / 2 ^ 64)%R.
      * generalize (shift64_succ l). unfold Rdiv. lra.
      * apply exp_ineq1_le.
    + left. replace (val 0) with 0%R by (unfold val; lra). apply exp_pos.
  - split; [exact H0|].
    replace (- val l)%R with (2 ^ 64 * (- val l / 2 ^ 64))%R; [exact H|].
    field.
Qed.

#[global] Opaque exp_low exp_neg_low.
