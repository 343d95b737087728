(** Cosines and angles in whole numbers (z stands for z / 2^128, see Fixed.v): the Taylor polynomial
    of cos with directed rounding, pi from it, the cosine of an angle in degrees, and a lower and an
    upper bound on the angle whose cosine is known. *)

From Coq Require Import ZArith Reals Lra Lia Bool.
From Panda Require Import Fixed.
Open Scope Z_scope.

(** ** cos t for 0 <= t <= 2 *)

(** 1 - v / ((2k+1)(2k+2)) (1 - v / ((2k+3)(2k+4)) (1 - ...)), n brackets: Taylor's polynomial of cos. *)
Fixpoint bracket (n : nat) (k : nat) (v : R) : R :=
  match n with
  | O => 1
  | S n => 1 - v / (INR (2 * k + 1) * INR (2 * k + 2)) * bracket n (S k) v
  end.

(** The same in whole numbers, between a lower and an upper bound; v = t * t. *)
Fixpoint brackets (n : nat) (k : Z) (v : Z) : Z * Z :=
  match n with
  | O => (one, one)
  | S n =>
      let (lo, hi) := brackets n (k + 1) v in
      let c := (2 * k + 1) * (2 * k + 2) * (one * one) in
      (one - (v * hi / c + 1), one - v * lo / c)
  end.

Lemma cos_term_step : forall x k,
  cos_term x (S k) = (- (cos_term x k * (x * x / (INR (2 * k + 1) * INR (2 * k + 2)))))%R.
Proof.
  intros x k. unfold cos_term.
  replace (2 * S k)%nat with (S (S (2 * k))) by lia.
  rewrite !fact_simpl, !mult_INR. simpl pow.
  replace (2 * k + 1)%nat with (S (2 * k)) by lia.
  replace (2 * k + 2)%nat with (S (S (2 * k))) by lia.
  field. repeat split; try (apply not_0_INR; lia); apply INR_fact_neq_0.
Qed.

Lemma sum_from : forall n k x,
  sum_f_R0 (fun i => cos_term x (k + i)) n = (cos_term x k * bracket n k (x * x))%R.
Proof.
  induction n as [|n IH]; intros k x.
  - simpl sum_f_R0. rewrite Nat.add_0_r. simpl. lra.
  - rewrite decomp_sum by lia. rewrite Nat.add_0_r. simpl pred.
    rewrite (sum_eq _ (fun i => cos_term x (S k + i)) n).
    + rewrite IH, cos_term_step. cbn [bracket]. unfold Rdiv. ring.
    + intros i _. f_equal. lia.
Qed.

Lemma cos_bracket : forall x n, cos_approx x n = bracket n 0 (x * x).
Proof.
  intros x n. unfold cos_approx.
  change (cos_term x) with (fun i => cos_term x (0 + i)). rewrite sum_from.
  unfold cos_term. simpl. lra.
Qed.

Lemma brackets_enclose : forall n k t, let (lo, hi) := brackets n (Z.of_nat k) (t * t) in
  (val lo <= bracket n k (val t * val t) <= val hi)%R.
Proof.
  induction n as [|n IH]; intros k t; cbn [brackets].
  - simpl. rewrite val_one. lra.
  - specialize (IH (S k) t). replace (Z.of_nat (S k)) with (Z.of_nat k + 1) in IH by lia.
    destruct (brackets n (Z.of_nat k + 1) (t * t)) as [lo hi]. destruct IH as [Hlo Hhi].
    cbn [bracket].
    set (c := (2 * Z.of_nat k + 1) * (2 * Z.of_nat k + 2) * (one * one)).
    set (q := (INR (2 * k + 1) * INR (2 * k + 2))%R).
    assert (Hc : 0 < c) by (unfold c; generalize one_pos; nia).
    assert (Hq : (0 < q)%R) by (apply Rmult_lt_0_compat; apply lt_0_INR; lia).
    assert (Ec : IZR c = (q * (IZR one * IZR one))%R).
    { unfold c, q. rewrite !mult_IZR, !INR_IZR_INZ. f_equal. f_equal; f_equal; lia. }
    assert (P1 := one_real).
    assert (Scaled : forall p, (IZR (t * t * p) / IZR c / IZR one = val t * val t / q * val p)%R).
    { intro p. rewrite Ec, !mult_IZR. unfold val. field. split; lra. }
    assert (V : (0 <= val t * val t / q)%R).
    { apply Rmult_le_pos; [nra | left; apply Rinv_0_lt_compat, Hq]. }
    split.
    + rewrite val_minus, val_one.
      assert (H : (val t * val t / q * val hi <= val (t * t * hi / c + 1))%R).
      { rewrite <- Scaled. unfold val. apply Rmult_le_compat_r.
        - left. apply Rinv_0_lt_compat, P1.
        - apply div_down_succ, Hc. }
      assert (val t * val t / q * bracket n (S k) (val t * val t) <= val t * val t / q * val hi)%R
        by (apply Rmult_le_compat_l; assumption).
      lra.
    + rewrite val_minus, val_one.
      assert (H : (val (t * t * lo / c) <= val t * val t / q * val lo)%R).
      { rewrite <- Scaled. unfold val. apply Rmult_le_compat_r.
        - left. apply Rinv_0_lt_compat, P1.
        - apply div_down_le, Hc. }
      assert (val t * val t / q * val lo <= val t * val t / q * bracket n (S k) (val t * val t))%R
        by (apply Rmult_le_compat_l; assumption).
      lra.
Qed.

(** Few terms for small angles (below 1/64, about 100 km on the earth), 24 for others. *)
Definition cos_low (t : Z) : Z :=
  fst (if t <? one / 64 then brackets 7 0 (t * t) else brackets 23 0 (t * t)).
Definition cos_high (t : Z) : Z :=
  snd (if t <? one / 64 then brackets 8 0 (t * t) else brackets 24 0 (t * t)).

Lemma cos_between : forall t, 0 <= t <= 2 * one ->
  (val (cos_low t) <= cos (val t) <= val (cos_high t))%R.
Proof.
  intros t Ht.
  assert (B0 : (-2 <= val t)%R) by (generalize (val_nonneg t ltac:(lia)); lra).
  assert (B2 : (val t <= 2)%R).
  { generalize (val_le t (2 * one) ltac:(lia)). rewrite val_scale, val_one. lra. }
  unfold cos_low, cos_high.
  assert (L : forall n, (val (fst (brackets (2 * n + 1) 0 (t * t))) <= cos (val t))%R).
  { intro n. generalize (brackets_enclose (2 * n + 1) 0 t). change (Z.of_nat 0) with 0.
    destruct (brackets (2 * n + 1) 0 (t * t)) as [lo hi]. simpl fst.
    rewrite <- cos_bracket. generalize (pre_cos_bound (val t) n B0 B2). lra. }
  assert (U : forall n, (cos (val t) <= val (snd (brackets (2 * (n + 1)) 0 (t * t))))%R).
  { intro n. generalize (brackets_enclose (2 * (n + 1)) 0 t). change (Z.of_nat 0) with 0.
    destruct (brackets (2 * (n + 1)) 0 (t * t)) as [lo hi]. simpl snd.
    rewrite <- cos_bracket. generalize (pre_cos_bound (val t) n B0 B2). lra. }
  split.
  - destruct (t <? one / 64); [apply (L 3%nat) | apply (L 11%nat)].
  - destruct (t <? one / 64); [apply (U 3%nat) | apply (U 11%nat)].
Qed.

(** ** pi, to 2^-125 *)

Definition half_pi_low : Z := 534514292032483373929840186580935391600.
Definition half_pi_high : Z := half_pi_low + 100.

#[global] Opaque cos_low cos_high half_pi_low half_pi_high.

Lemma half_pi_between : (val half_pi_low <= PI / 2 <= val half_pi_high)%R.
Proof.
  assert (P3 := PI2_3_2). assert (P4 := PI_4). assert (Hone := one_pos).
  assert (two : val (2 * one) = 2%R) by (rewrite val_scale, val_one; lra).
  assert (R1 : 0 <= half_pi_low <= 2 * one) by (split; apply Z.leb_le; vm_compute; reflexivity).
  assert (R2 : 0 <= half_pi_high <= 2 * one) by (split; apply Z.leb_le; vm_compute; reflexivity).
  assert (B1 : (0 <= val half_pi_low <= 2)%R).
  { rewrite <- two. split; [apply val_nonneg | apply val_le]; lia. }
  assert (B2 : (0 <= val half_pi_high <= 2)%R).
  { rewrite <- two. split; [apply val_nonneg | apply val_le]; lia. }
  split; left.
  - apply cos_decreasing_0; try lra. rewrite cos_PI2.
    apply Rlt_le_trans with (val (cos_low half_pi_low)); [|apply cos_between, R1].
    replace 0%R with (val 0) by (unfold val; lra).
    apply Rmult_lt_compat_r; [apply Rinv_0_lt_compat, one_real|].
    apply IZR_lt, Z.ltb_lt. vm_compute. reflexivity.
  - apply cos_decreasing_0; try lra. rewrite cos_PI2.
    apply Rle_lt_trans with (val (cos_high half_pi_high)); [apply cos_between, R2|].
    replace 0%R with (val 0) by (unfold val; lra).
    apply Rmult_lt_compat_r; [apply Rinv_0_lt_compat, one_real|].
    apply IZR_lt, Z.ltb_lt. vm_compute. reflexivity.
Qed.

(** ** cos of n / d degrees *)

Definition degrees (n d : Z) : R := (IZR n / IZR d * (PI / 180))%R.

(** Lower and upper bound, for d > 0 and an angle of 0 to 90 degrees; (-1, 1) for any other. *)
Definition cos_acute (n d : Z) : Z * Z :=
  let low := n * half_pi_low / (90 * d) in
  let high := n * half_pi_high / (90 * d) + 1 in
  if (0 <=? n) && (n <=? 90 * d) && (high <=? 2 * one) && (0 <=? low)
  then (cos_low high, cos_high low) else (- one, one).

Lemma cos_acute_encloses : forall n d, 0 < d -> let (lo, hi) := cos_acute n d in
  (val lo <= cos (degrees n d) <= val hi)%R.
Proof.
  intros n d Hd. unfold cos_acute.
  destruct ((0 <=? n) && (n <=? 90 * d) && (n * half_pi_high / (90 * d) + 1 <=? 2 * one)
            && (0 <=? n * half_pi_low / (90 * d))) eqn:E.
  2: { rewrite val_opp, val_one. generalize (COS_bound (degrees n d)). lra. }
  apply andb_prop in E. destruct E as [E E4]. apply andb_prop in E. destruct E as [E E3].
  apply andb_prop in E. destruct E as [E1 E2].
  apply Z.leb_le in E1, E2, E3, E4.
  assert (Hq : (0 <= IZR n / IZR (90 * d) <= 1)%R).
  { assert (0 < IZR (90 * d))%R by (apply IZR_lt; lia).
    split.
    - apply Rmult_le_pos; [apply IZR_le, E1 | left; apply Rinv_0_lt_compat; assumption].
    - apply Rmult_le_reg_r with (IZR (90 * d)); [assumption|]. unfold Rdiv.
      rewrite Rmult_assoc, Rinv_l, Rmult_1_r, Rmult_1_l by lra. apply IZR_le, E2. }
  assert (Eq : degrees n d = (IZR n / IZR (90 * d) * (PI / 2))%R).
  { unfold degrees. rewrite mult_IZR. field. apply not_0_IZR. lia. }
  assert (Scaled : forall z, (IZR (n * z) / IZR (90 * d) / IZR one
                              = IZR n / IZR (90 * d) * val z)%R).
  { intro z. unfold val. rewrite mult_IZR. unfold Rdiv. ring. }
  assert (Pos := Rinv_0_lt_compat _ one_real).
  assert (Hh : (degrees n d <= val (n * half_pi_high / (90 * d) + 1))%R).
  { rewrite Eq. apply Rle_trans with (IZR n / IZR (90 * d) * val half_pi_high)%R.
    - apply Rmult_le_compat_l; [lra | apply half_pi_between].
    - rewrite <- Scaled. unfold val. apply Rmult_le_compat_r; [lra|].
      apply div_down_succ. lia. }
  assert (Hl : (val (n * half_pi_low / (90 * d)) <= degrees n d)%R).
  { rewrite Eq. apply Rle_trans with (IZR n / IZR (90 * d) * val half_pi_low)%R.
    - rewrite <- Scaled. unfold val. apply Rmult_le_compat_r; [lra|].
      apply div_down_le. lia.
    - apply Rmult_le_compat_l; [lra | apply half_pi_between]. }
  assert (P3 := PI2_3_2).
  assert (Rng : (0 <= degrees n d <= PI / 2)%R).
  { rewrite Eq. split; [apply Rmult_le_pos; lra|].
    rewrite <- (Rmult_1_l (PI / 2)) at 2. apply Rmult_le_compat_r; lra. }
  assert (H0 : 0 <= n * half_pi_high / (90 * d) + 1).
  { apply Z.le_trans with (n * half_pi_high / (90 * d)); [|lia].
    apply Z.div_pos; [apply Z.mul_nonneg_nonneg; [lia | discriminate] | lia]. }
  assert (Two : (val (n * half_pi_high / (90 * d) + 1) <= 2)%R).
  { generalize (val_le _ _ E3). rewrite val_scale, val_one. lra. }
  split.
  - apply Rle_trans with (cos (val (n * half_pi_high / (90 * d) + 1))).
    + apply cos_between. lia.
    + apply cos_decr_1; lra.
  - apply Rle_trans with (cos (val (n * half_pi_low / (90 * d)))).
    + generalize (val_nonneg _ E4). intro. apply cos_decr_1; lra.
    + apply cos_between. split; [exact E4|].
      apply Z.le_trans with (n * half_pi_high / (90 * d) + 1); [|exact E3].
      apply Z.le_trans with (n * half_pi_high / (90 * d)); [|lia].
      apply Z.div_le_mono; [lia|]. apply Z.mul_le_mono_nonneg_l; [lia | discriminate].
Qed.

(** For every angle between -360 and 360 degrees; sin is cos of what is missing to 90 degrees. *)
Definition cos_degrees (n d : Z) : Z * Z :=
  let a := Z.abs n in
  let b := if 180 * d <? a then 360 * d - a else a in
  if 90 * d <? b then let (lo, hi) := cos_acute (180 * d - b) d in (- hi, - lo)
  else cos_acute b d.

Definition sin_degrees (n d : Z) : Z * Z := cos_degrees (90 * d - n) d.

Lemma degrees_minus : forall c n d, 0 < d ->
  degrees (c * d - n) d = (IZR c * (PI / 180) - degrees n d)%R.
Proof.
  intros c n d Hd. unfold degrees. rewrite minus_IZR, mult_IZR. field. apply not_0_IZR. lia.
Qed.

Lemma cos_degrees_encloses : forall n d, 0 < d -> let (lo, hi) := cos_degrees n d in
  (val lo <= cos (degrees n d) <= val hi)%R.
Proof.
  intros n d Hd. unfold cos_degrees.
  assert (Abs : cos (degrees (Z.abs n) d) = cos (degrees n d)).
  { destruct (Z.abs_spec n) as [[_ ->] | [_ ->]]; [reflexivity|].
    replace (degrees (- n) d) with (- degrees n d)%R.
    - apply cos_neg.
    - unfold degrees. rewrite opp_IZR. unfold Rdiv. ring. }
  set (b := if 180 * d <? Z.abs n then 360 * d - Z.abs n else Z.abs n).
  assert (B : cos (degrees b d) = cos (degrees n d)).
  { unfold b. destruct (180 * d <? Z.abs n); [|exact Abs].
    rewrite degrees_minus by exact Hd.
    replace (360 * (PI / 180) - degrees (Z.abs n) d)%R
      with (- degrees (Z.abs n) d + 2 * INR 1 * PI)%R by (simpl; field).
    rewrite cos_period, cos_neg. exact Abs. }
  destruct (90 * d <? b).
  - generalize (cos_acute_encloses (180 * d - b) d Hd).
    destruct (cos_acute (180 * d - b) d) as [lo hi].
    rewrite degrees_minus by exact Hd.
    replace (180 * (PI / 180) - degrees b d)%R with (PI - degrees b d)%R by field.
    rewrite Rtrigo_facts.cos_pi_minus, B, !val_opp. lra.
  - rewrite <- B. apply (cos_acute_encloses b d Hd).
Qed.

Lemma sin_degrees_encloses : forall n d, 0 < d -> let (lo, hi) := sin_degrees n d in
  (val lo <= sin (degrees n d) <= val hi)%R.
Proof.
  intros n d Hd. unfold sin_degrees. generalize (cos_degrees_encloses (90 * d - n) d Hd).
  destruct (cos_degrees (90 * d - n) d) as [lo hi]. rewrite degrees_minus by exact Hd.
  replace (90 * (PI / 180) - degrees n d)%R with (PI / 2 - degrees n d)%R by field.
  rewrite cos_shift. auto.
Qed.

(** ** The angle whose cosine is known
    A guess h at half the angle is made by the series of arcsin, with nothing proved about it, and
    checked: cos(2 h) = 2 cos(h)^2 - 1 lies on the right side of the cosine, so 2 h lies on the
    right side of the angle.  Where the check fails the answer is 0 (or pi), which is always right. *)

Fixpoint arcsin_series (fuel : nat) (n term square : Z) : Z :=
  match fuel with
  | O => term
  | S fuel =>
      if term <=? 0 then 0
      else term + arcsin_series fuel (n + 1)
                    (times term square * ((2 * n + 1) * (2 * n + 1)) / ((2 * n + 2) * (2 * n + 3)))
                    square
  end.

Fixpoint arcsin_guess (fuel : nat) (s : Z) : Z :=
  match fuel with
  | O => s
  | S fuel =>
      if s <? one / 8 then arcsin_series 24 0 s (times s s)
      else 2 * arcsin_guess fuel (Z.sqrt ((one - Z.sqrt (one * one - s * s)) * one / 2))
  end.

Definition half_angle_guess (c : Z) : Z := arcsin_guess 5 (Z.sqrt ((one - c) * one / 2)).

Definition margin (h : Z) : Z := 64 * one / (h + 1) + 64.

(** From an upper bound c on a cosine, a lower bound on the angle. *)
Definition angle_low (c : Z) : Z :=
  let guess := half_angle_guess c in
  let h := guess - margin guess in
  let k := cos_low h in
  if (0 <=? h) && (h <=? half_pi_low) && (0 <=? k) && (c <=? 2 * times k k - one) then 2 * h else 0.

(** From a lower bound c on a cosine, an upper bound on the angle. *)
Definition angle_high (c : Z) : Z :=
  let guess := half_angle_guess c in
  let h := guess + margin guess in
  let k := cos_high h in
  if (0 <=? h) && (h <=? half_pi_low) && (2 * (times k k + 1) - one <=? c) then 2 * h
  else 2 * half_pi_high.

Lemma half_pi_below_two : half_pi_low <= 2 * one.
Proof. apply Z.leb_le. vm_compute. reflexivity. Qed.

Theorem angle_low_le : forall x c, (-1 <= x <= 1)%R -> (x <= val c)%R ->
  0 <= angle_low c /\ (val (angle_low c) <= acos x)%R.
Proof.
  intros x c Hx Hc. unfold angle_low.
  set (h := half_angle_guess c - margin (half_angle_guess c)).
  destruct ((0 <=? h) && (h <=? half_pi_low) && (0 <=? cos_low h)
            && (c <=? 2 * times (cos_low h) (cos_low h) - one)) eqn:E.
  2: { split; [lia|]. replace (val 0) with 0%R by (unfold val; lra). apply acos_bound. }
  apply andb_prop in E. destruct E as [E E4]. apply andb_prop in E. destruct E as [E E3].
  apply andb_prop in E. destruct E as [E1 E2]. apply Z.leb_le in E1, E2, E3, E4.
  split; [lia|].
  assert (Hb := acos_bound x).
  destruct (cos_between h) as [L _]; [generalize half_pi_below_two; lia|].
  assert (Low := val_le _ _ E4). rewrite val_minus, val_scale, val_one in Low.
  assert (K0 := val_nonneg _ E3).
  assert (Ht := times_le (cos_low h) (cos_low h)).
  assert (Hh : (0 <= val h <= PI / 2)%R).
  { split; [apply val_nonneg, E1|]. generalize (val_le _ _ E2) half_pi_between. lra. }
  rewrite val_scale. apply Rnot_lt_le. intro Far.
  assert (cos (2 * val h) < cos (acos x))%R by (apply cos_decreasing_1; lra).
  rewrite cos_acos in H by exact Hx. rewrite cos_2a_cos in H. nra.
Qed.

Theorem angle_high_ge : forall x c, (-1 <= x <= 1)%R -> (val c <= x)%R ->
  (acos x <= val (angle_high c))%R.
Proof.
  intros x c Hx Hc. unfold angle_high.
  set (h := half_angle_guess c + margin (half_angle_guess c)).
  assert (Hb := acos_bound x). assert (Hp := half_pi_between).
  destruct ((0 <=? h) && (h <=? half_pi_low)
            && (2 * (times (cos_high h) (cos_high h) + 1) - one <=? c)) eqn:E.
  2: { rewrite val_scale. lra. }
  apply andb_prop in E. destruct E as [E E3]. apply andb_prop in E. destruct E as [E1 E2].
  apply Z.leb_le in E1, E2, E3.
  destruct (cos_between h) as [_ U]; [generalize half_pi_below_two; lia|].
  assert (Up := val_le _ _ E3). rewrite val_minus, val_scale, val_one in Up.
  assert (Ht := times_succ (cos_high h) (cos_high h)).
  assert (Hh : (0 <= val h <= PI / 2)%R).
  { split; [apply val_nonneg, E1|]. generalize (val_le _ _ E2). lra. }
  assert (C0 : (0 <= cos (val h))%R) by (apply cos_ge_0; lra).
  rewrite val_scale. apply Rnot_lt_le. intro Far.
  assert (cos (acos x) < cos (2 * val h))%R by (apply cos_decreasing_1; lra).
  rewrite cos_acos in H by exact Hx. rewrite cos_2a_cos in H. nra.
Qed.
