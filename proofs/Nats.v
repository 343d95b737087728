(** Epsilon times a distance, from below and from above, in whole numbers (over 2^128).  This is what
    the checker compares logarithms of weights with. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Angle Distance.
Import ListNotations.
Open Scope Z_scope.

Fixpoint dot_z (p q : list Z) : Z :=
  match p, q with
  | a :: p, b :: q => a * b + dot_z p q
  | _, _ => 0
  end.

Fixpoint square_distance_z (p q : list Z) : Z :=
  match p, q with
  | a :: p, b :: q => (a - b) * (a - b) + square_distance_z p q
  | _, _ => 0
  end.

(** What is computed once for a record: its place on the sphere with an error, or its square. *)
Definition prepare (s : space) (p : list Z) : list Z :=
  match s with
  | Sphere den =>
      let (cl, ch) := cos_degrees (entry p 0) den in
      let (sl, sh) := sin_degrees (entry p 0) den in
      let (xl, xh) := cos_degrees (entry p 1) den in
      let (yl, yh) := sin_degrees (entry p 1) den in
      let x := Z.max (- one) xl in
      let y := Z.max (- one) yl in
      [(ch - cl) + (sh - sl) + (xh - x) + (yh - y) + 1; times cl x; times cl y; sl]
  | Directions => dot_z p p :: p
  | _ => p
  end.

(** Bounds on the cosine of the angle between two prepared places. *)
Definition cosine_error (p q : list Z) : Z :=
  head p * (Z.abs (entry q 1) + Z.abs (entry q 2) + Z.abs (entry q 3)) + 3 * one * head q.
Definition cosine_high (p q : list Z) : Z := (dot_z (tl p) (tl q) + cosine_error p q) / one + 1.
Definition cosine_low (p q : list Z) : Z := (dot_z (tl p) (tl q) - cosine_error p q) / one.

(** Bounds on the cosine of the angle between two vectors, from their product and squares. *)
Definition ratio_high (d n : Z) : Z :=
  let r := Z.sqrt n in
  if r =? 0 then one else if 0 <=? d then d * one / r + 1 else d * one / (r + 1) + 1.
Definition ratio_low (d n : Z) : Z :=
  let r := Z.sqrt n in
  if r =? 0 then - one else if 0 <=? d then d * one / (r + 1) else d * one / r.

Definition wide : Z := 2 ^ 128.

(** Lower bound on epsilon times distance, epsilon = en / ed. *)
Definition nats_low (s : space) (en ed : Z) (p q : list Z) : Z :=
  match s with
  | Given den => en * entry (tl p) (head q) * one / (ed * den)
  | Euclidean den =>
      Z.sqrt (en * en * square_distance_z p q * (one * one) / (ed * ed * (den * den)))
  | Sphere den => en * 63710088 * angle_low (cosine_high p q) / (ed * 10000)
  | Directions =>
      en * angle_low (ratio_high (dot_z (tl p) (tl q) * wide) (head p * head q * (wide * wide))) / ed
  end.

Definition nats_high (s : space) (en ed : Z) (p q : list Z) : Z :=
  match s with
  | Given den => en * entry (tl p) (head q) * one / (ed * den) + 1
  | Euclidean den =>
      Z.sqrt (en * en * square_distance_z p q * (one * one) / (ed * ed * (den * den))) + 1
  | Sphere den => en * 63710088 * angle_high (cosine_low p q) / (ed * 10000) + 1
  | Directions =>
      en * angle_high (ratio_low (dot_z (tl p) (tl q) * wide) (head p * head q * (wide * wide))) / ed
      + 1
  end.

(** The space's denominator must be positive. *)
Definition denominator (s : space) : Z :=
  match s with Given den | Euclidean den | Sphere den => den | Directions => 1 end.

(** ** Proofs *)

Lemma div_one_down : forall a k, 0 < k -> (val (a / k) <= val a / IZR k)%R.
Proof.
  intros a k Hk. unfold val.
  apply Rle_trans with (IZR a / IZR k / IZR one)%R; [|unfold Rdiv; lra].
  apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, one_real | apply div_down_le, Hk].
Qed.

Lemma div_one_up : forall a k, 0 < k -> (val a / IZR k <= val (a / k + 1))%R.
Proof.
  intros a k Hk. unfold val.
  apply Rle_trans with (IZR a / IZR k / IZR one)%R; [unfold Rdiv; lra|].
  apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, one_real | apply div_down_succ, Hk].
Qed.

Lemma val_times_one : forall a, val (a * one) = IZR a.
Proof. intro a. unfold val. rewrite mult_IZR. field. apply Rgt_not_eq, one_real. Qed.

Lemma dot_reals : forall den p q, 0 < den ->
  dot (reals den p) (reals den q) = (IZR (dot_z p q) / (IZR den * IZR den))%R.
Proof.
  intros den p. induction p as [|a p IH]; intros [|b q] Hd; simpl; try (unfold Rdiv; ring).
  fold (reals den p) (reals den q). rewrite IH by exact Hd. rewrite plus_IZR, mult_IZR.
  field. apply not_0_IZR. lia.
Qed.

Lemma square_distance_reals : forall den p q, 0 < den ->
  square_distance (reals den p) (reals den q)
  = (IZR (square_distance_z p q) / (IZR den * IZR den))%R.
Proof.
  intros den p. induction p as [|a p IH]; intros [|b q] Hd; simpl; try (unfold Rdiv; ring).
  fold (reals den p) (reals den q). rewrite IH by exact Hd. rewrite plus_IZR, mult_IZR, minus_IZR.
  field. apply not_0_IZR. lia.
Qed.

Lemma square_distance_z_nonneg : forall p q, 0 <= square_distance_z p q.
Proof. induction p as [|a p IH]; intros [|b q]; simpl; try lia.
  specialize (IH q). generalize (Z.square_nonneg (a - b)). lia.
Qed.

(** *** Square roots *)

Lemma sqrt_div_low : forall a b, 0 <= a -> 0 < b ->
  (IZR (Z.sqrt (a / b)) <= sqrt (IZR a / IZR b))%R.
Proof.
  intros a b Ha Hb. set (s := Z.sqrt (a / b)).
  assert (H0 : 0 <= a / b) by (apply Z.div_pos; lia).
  destruct (Z.sqrt_spec (a / b) H0) as [H _]. fold s in H.
  rewrite <- (sqrt_Rsqr (IZR s)) by (apply IZR_le, Z.sqrt_nonneg).
  apply sqrt_le_1_alt. unfold Rsqr. rewrite <- mult_IZR.
  apply Rle_trans with (IZR (a / b)); [apply IZR_le, H | apply div_down_le, Hb].
Qed.

Lemma sqrt_div_high : forall a b, 0 <= a -> 0 < b ->
  (sqrt (IZR a / IZR b) <= IZR (Z.sqrt (a / b) + 1))%R.
Proof.
  intros a b Ha Hb. set (s := Z.sqrt (a / b)).
  assert (H0 : 0 <= a / b) by (apply Z.div_pos; lia).
  assert (S0 : 0 <= s) by apply Z.sqrt_nonneg.
  destruct (Z.sqrt_spec (a / b) H0) as [_ H]. fold s in H.
  rewrite <- (sqrt_Rsqr (IZR (s + 1))) by (apply IZR_le; lia).
  apply sqrt_le_1_alt. unfold Rsqr. rewrite <- mult_IZR.
  apply Rle_trans with (IZR (a / b + 1)); [apply div_down_succ, Hb | apply IZR_le; lia].
Qed.

(** *** The euclidean distance *)

Lemma euclidean_root : forall en ed den p q, 0 <= en -> 0 < ed -> 0 < den ->
  (IZR en / IZR ed * euclidean (reals den p) (reals den q)
   = sqrt (IZR (en * en * square_distance_z p q * (one * one)) / IZR (ed * ed * (den * den)))
     / IZR one)%R.
Proof.
  intros en ed den p q Hn Hd Hden. unfold euclidean. rewrite square_distance_reals by exact Hden.
  assert (N := square_distance_z_nonneg p q). set (n := square_distance_z p q) in *.
  assert (Re : (0 < IZR ed)%R) by (apply IZR_lt, Hd).
  assert (Rd : (0 < IZR den)%R) by (apply IZR_lt, Hden).
  assert (R1 := one_real). assert (Rn : (0 <= IZR en)%R) by (apply IZR_le, Hn).
  assert (RN : (0 <= IZR n)%R) by (apply IZR_le, N).
  replace (IZR (en * en * n * (one * one)) / IZR (ed * ed * (den * den)))%R
    with (Rsqr (IZR en / IZR ed * IZR one) * (IZR n / (IZR den * IZR den)))%R.
  - rewrite sqrt_mult.
    + rewrite sqrt_Rsqr; [field; split; lra|].
      repeat apply Rmult_le_pos; try lra. left; apply Rinv_0_lt_compat, Re.
    + apply Rle_0_sqr.
    + apply Rmult_le_pos; [lra|]. left; apply Rinv_0_lt_compat, Rmult_lt_0_compat; lra.
  - unfold Rsqr. rewrite !mult_IZR. field. split; lra.
Qed.

(** *** Places on the sphere *)

Lemma abs_between : forall x e, (Rabs x <= e -> - e <= x <= e)%R.
Proof. intros x e. unfold Rabs. destruct (Rcase_abs x); lra. Qed.

Lemma place_unit : forall lat lon, dot (place lat lon) (place lat lon) = 1%R.
Proof.
  intros. simpl. generalize (sin2_cos2 lat) (sin2_cos2 lon). unfold Rsqr. intros H1 H2.
  replace (cos lat * cos lon * (cos lat * cos lon)
    + (cos lat * sin lon * (cos lat * sin lon) + (sin lat * sin lat + 0)))%R
    with (cos lat * cos lat * (sin lon * sin lon + cos lon * cos lon) + sin lat * sin lat)%R by ring.
  rewrite H2. lra.
Qed.

Lemma product_error : forall a A b B e : R, (a <= A <= a + e)%R -> (-1 <= A <= 1)%R ->
  forall f, (b <= B <= b + f)%R -> (-1 <= b <= 1)%R -> (Rabs (a * b - A * B) <= e + f)%R.
Proof.
  intros a A b B e HA UA f HB UB.
  replace (a * b - A * B)%R with (- (b * (A - a)) - A * (B - b))%R by ring.
  apply Rabs_le. split; nra.
Qed.

(** Each coordinate of a prepared place is within its error of the true one. *)
Lemma prepare_sphere : forall den p, 0 < den ->
  exists e a b c, prepare (Sphere den) p = [e; a; b; c] /\
  (Rabs (val a - cos (degrees (entry p 0) den) * cos (degrees (entry p 1) den)) <= val e)%R /\
  (Rabs (val b - cos (degrees (entry p 0) den) * sin (degrees (entry p 1) den)) <= val e)%R /\
  (Rabs (val c - sin (degrees (entry p 0) den)) <= val e)%R.
Proof.
  intros den p Hd. unfold prepare.
  generalize (cos_degrees_encloses (entry p 0) den Hd) (sin_degrees_encloses (entry p 0) den Hd)
    (cos_degrees_encloses (entry p 1) den Hd) (sin_degrees_encloses (entry p 1) den Hd).
  destruct (cos_degrees (entry p 0) den) as [cl ch]. destruct (sin_degrees (entry p 0) den) as [sl sh].
  destruct (cos_degrees (entry p 1) den) as [xl xh]. destruct (sin_degrees (entry p 1) den) as [yl yh].
  set (phi := degrees (entry p 0) den). set (lam := degrees (entry p 1) den).
  intros Hc Hs Hx Hy.
  assert (Low : forall z r, (val z <= r)%R -> (-1 <= r <= 1)%R ->
            (val (Z.max (- one) z) <= r /\ -1 <= val (Z.max (- one) z) <= 1)%R).
  { intros z r H1 H2. assert (O : val (- one) = (-1)%R) by (rewrite val_opp, val_one; lra).
    destruct (Z.max_spec (- one) z) as [[H ->] | [H ->]]; rewrite ?O; try lra.
    generalize (val_le (- one) z ltac:(lia)). lra. }
  assert (Bc := COS_bound phi). assert (Bs := SIN_bound phi).
  assert (Bx := COS_bound lam). assert (By := SIN_bound lam).
  destruct (Low xl (cos lam)) as [X1 X2]; [lra | lra |].
  destruct (Low yl (sin lam)) as [Y1 Y2]; [lra | lra |].
  do 4 eexists. split; [reflexivity|].
  set (x := Z.max (- one) xl) in *. set (y := Z.max (- one) yl) in *.
  rewrite !val_plus, !val_minus.
  assert (T : forall a b, (Rabs (val (times a b) - val a * val b) <= val 1)%R).
  { intros a b. generalize (times_le a b) (times_succ a b). rewrite val_plus. intros.
    apply Rabs_le. lra. }
  assert (V1 : (0 <= val 1)%R) by (apply val_nonneg; lia).
  assert (Px := product_error (val cl) (cos phi) (val x) (cos lam) (val ch - val cl)
                 ltac:(lra) ltac:(lra) (val xh - val x) ltac:(lra) X2).
  assert (Py := product_error (val cl) (cos phi) (val y) (sin lam) (val ch - val cl)
                 ltac:(lra) ltac:(lra) (val yh - val y) ltac:(lra) Y2).
  assert (Tx := T cl x). assert (Ty := T cl y).
  repeat split.
  - apply Rabs_le. apply abs_between in Px. apply abs_between in Tx. lra.
  - apply Rabs_le. apply abs_between in Py. apply abs_between in Ty. lra.
  - apply Rabs_le. lra.
Qed.

Lemma coordinate_error : forall (A B a b e f : R), (Rabs (a - A) <= e)%R -> (Rabs (b - B) <= f)%R ->
  (-1 <= A <= 1)%R -> (Rabs (a * b - A * B) <= e * Rabs b + f)%R.
Proof.
  intros A B a b e f He Hf HA.
  replace (a * b - A * B)%R with ((a - A) * b + A * (b - B))%R by ring.
  apply Rle_trans with (Rabs ((a - A) * b) + Rabs (A * (b - B)))%R; [apply Rabs_triang|].
  rewrite !Rabs_mult.
  assert (Rabs A <= 1)%R by (apply Rabs_le; lra).
  assert (0 <= Rabs b)%R by apply Rabs_pos. assert (0 <= Rabs A)%R by apply Rabs_pos.
  assert (0 <= Rabs (b - B))%R by apply Rabs_pos.
  nra.
Qed.

Lemma val_abs : forall a, val (Z.abs a) = Rabs (val a).
Proof.
  intro a. unfold val. rewrite abs_IZR. unfold Rdiv. rewrite Rabs_mult. f_equal.
  symmetry. apply Rabs_pos_eq. left. apply Rinv_0_lt_compat, one_real.
Qed.

Lemma val_product : forall a b, (IZR (a * b) / IZR one / IZR one = val a * val b)%R.
Proof. intros. unfold val. rewrite mult_IZR. field. apply Rgt_not_eq, one_real. Qed.

Lemma cosine_between : forall den p q, 0 < den ->
  (val (cosine_low (prepare (Sphere den) p) (prepare (Sphere den) q))
   <= dot (place (degrees (entry p 0) den) (degrees (entry p 1) den))
          (place (degrees (entry q 0) den) (degrees (entry q 1) den))
   <= val (cosine_high (prepare (Sphere den) p) (prepare (Sphere den) q)))%R.
Proof.
  intros den p q Hd.
  destruct (prepare_sphere den p Hd) as (e & a1 & a2 & a3 & -> & H1 & H2 & H3).
  destruct (prepare_sphere den q Hd) as (f & b1 & b2 & b3 & -> & G1 & G2 & G3).
  set (phi := degrees (entry p 0) den) in *. set (lam := degrees (entry p 1) den) in *.
  set (phi' := degrees (entry q 0) den) in *. set (lam' := degrees (entry q 1) den) in *.
  assert (Bc := COS_bound phi). assert (Bs := SIN_bound phi).
  assert (Bx := COS_bound lam). assert (By := SIN_bound lam).
  assert (E1 := coordinate_error _ _ _ _ _ _ H1 G1 ltac:(nra)).
  assert (E2 := coordinate_error _ _ _ _ _ _ H2 G2 ltac:(nra)).
  assert (E3 := coordinate_error _ _ _ _ _ _ H3 G3 ltac:(nra)).
  apply abs_between in E1. apply abs_between in E2. apply abs_between in E3.
  unfold cosine_low, cosine_high, cosine_error, head, dot_z, entry, tl, hd, place, dot.
  rewrite !Z.add_0_r. simpl Z.eqb. cbv iota.
  set (err := e * (Z.abs b1 + Z.abs b2 + Z.abs b3) + 3 * one * f).
  set (s := a1 * b1 + (a2 * b2 + a3 * b3)).
  assert (Ierr : (IZR err / IZR one / IZR one
                  = val e * (Rabs (val b1) + Rabs (val b2) + Rabs (val b3)) + 3 * val f)%R).
  { unfold err. rewrite plus_IZR. unfold Rdiv. rewrite !Rmult_plus_distr_r.
    change (IZR (e * (Z.abs b1 + Z.abs b2 + Z.abs b3)) * / IZR one * / IZR one)%R
      with (IZR (e * (Z.abs b1 + Z.abs b2 + Z.abs b3)) / IZR one / IZR one)%R.
    rewrite val_product, !val_plus, !val_abs. f_equal.
    unfold val. rewrite !mult_IZR. field. apply Rgt_not_eq, one_real. }
  assert (Is : (IZR s / IZR one / IZR one = val a1 * val b1 + (val a2 * val b2 + val a3 * val b3))%R).
  { unfold s. rewrite !plus_IZR. unfold Rdiv. rewrite !Rmult_plus_distr_r.
    rewrite <- !val_product. unfold Rdiv. ring. }
  assert (R1 := Rinv_0_lt_compat _ one_real).
  split.
  - apply Rle_trans with (IZR (s - err) / IZR one / IZR one)%R.
    + unfold val. apply Rmult_le_compat_r; [lra | apply div_down_le, one_pos].
    + rewrite minus_IZR. unfold Rdiv in *. lra.
  - apply Rle_trans with (IZR (s + err) / IZR one / IZR one)%R.
    + rewrite plus_IZR. unfold Rdiv in *. lra.
    + unfold val. apply Rmult_le_compat_r; [lra | apply div_down_succ, one_pos].
Qed.

Lemma cosine_range : forall lat lon lat' lon', (-1 <= dot (place lat lon) (place lat' lon') <= 1)%R.
Proof.
  intros. generalize (haversine_formula lat lon lat' lon').
  generalize (cauchy_schwarz (place lat lon) (place lat' lon')). rewrite !place_unit. nra.
Qed.

(** *** The angle between two vectors *)

Lemma dot_z_nonneg : forall p, 0 <= dot_z p p.
Proof. induction p as [|a p IH]; simpl; [lia|]. generalize (Z.square_nonneg a). lia. Qed.

Lemma dot_z_square : forall p q, dot_z p q * dot_z p q <= dot_z p p * dot_z q q.
Proof.
  intros p q. generalize (cauchy_schwarz (reals 1 p) (reals 1 q)).
  rewrite !dot_reals by lia. intro H. apply le_IZR. rewrite !mult_IZR. lra.
Qed.

Lemma ratio_between : forall d n, 0 <= n -> d * d <= n ->
  (-1 <= IZR d / sqrt (IZR n) <= 1)%R /\
  (val (ratio_low d n) <= IZR d / sqrt (IZR n) <= val (ratio_high d n))%R.
Proof.
  intros d n Hn Hd.
  set (r := Z.sqrt n). destruct (Z.sqrt_spec n Hn) as [S1 S2]. fold r in S1, S2.
  assert (R0 : 0 <= r) by apply Z.sqrt_nonneg.
  assert (Rn : (0 <= IZR n)%R) by (apply IZR_le, Hn).
  assert (L : (IZR r <= sqrt (IZR n))%R).
  { rewrite <- (sqrt_Rsqr (IZR r)) by (apply IZR_le, R0). apply sqrt_le_1_alt. unfold Rsqr.
    rewrite <- mult_IZR. apply IZR_le, S1. }
  assert (U : (sqrt (IZR n) <= IZR (r + 1))%R).
  { rewrite <- (sqrt_Rsqr (IZR (r + 1))) by (apply IZR_le; lia). apply sqrt_le_1_alt. unfold Rsqr.
    rewrite <- mult_IZR. apply IZR_le. lia. }
  assert (Sq : (IZR d * IZR d <= sqrt (IZR n) * sqrt (IZR n))%R).
  { rewrite sqrt_sqrt by exact Rn. rewrite <- mult_IZR. apply IZR_le, Hd. }
  assert (P := sqrt_pos (IZR n)). set (w := sqrt (IZR n)) in *.
  assert (Range : (-1 <= IZR d / w <= 1)%R).
  { destruct P as [P|P].
    - assert (- w <= IZR d <= w)%R by (split; nra).
      assert (I := Rinv_0_lt_compat _ P). assert (w * / w = 1)%R by (apply Rinv_r; lra).
      unfold Rdiv. split; nra.
    - replace (IZR d) with 0%R by nra. unfold Rdiv. lra. }
  split; [exact Range|].
  unfold ratio_low, ratio_high. fold r.
  destruct (r =? 0) eqn:Z0; [rewrite val_opp, val_one; lra|].
  apply Z.eqb_neq in Z0. assert (Rp : (0 < IZR r)%R) by (apply IZR_lt; lia).
  assert (Wp : (0 < w)%R) by lra.
  assert (I1 : (/ w <= / IZR r)%R) by (apply Rinv_le_contravar; lra).
  assert (I2 : (/ IZR (r + 1) <= / w)%R) by (apply Rinv_le_contravar; lra).
  assert (Up : forall k, 0 < k -> (IZR d / IZR k <= val (d * one / k + 1))%R).
  { intros k Hk. rewrite <- (val_times_one d). apply div_one_up, Hk. }
  assert (Dn : forall k, 0 < k -> (val (d * one / k) <= IZR d / IZR k)%R).
  { intros k Hk. rewrite <- (val_times_one d). apply div_one_down, Hk. }
  destruct (0 <=? d) eqn:D0.
  - apply Z.leb_le in D0. assert (D : (0 <= IZR d)%R) by (apply IZR_le, D0).
    generalize (Up r ltac:(lia)) (Dn (r + 1) ltac:(lia)). unfold Rdiv. split; nra.
  - apply Z.leb_gt in D0. assert (D : (IZR d <= 0)%R) by (apply IZR_le; lia).
    generalize (Up (r + 1) ltac:(lia)) (Dn r ltac:(lia)). unfold Rdiv. split; nra.
Qed.

Lemma angle_ratio : forall p q,
  (dot (reals 1 p) (reals 1 q) / sqrt (dot (reals 1 p) (reals 1 p) * dot (reals 1 q) (reals 1 q))
   = IZR (dot_z p q * wide) / sqrt (IZR (dot_z p p * dot_z q q * (wide * wide))))%R.
Proof.
  intros p q. rewrite !dot_reals by lia. rewrite !mult_IZR.
  assert (Pp : (0 <= IZR (dot_z p p))%R) by (apply IZR_le, dot_z_nonneg).
  assert (Pq : (0 <= IZR (dot_z q q))%R) by (apply IZR_le, dot_z_nonneg).
  assert (W : (0 < IZR wide)%R) by (apply IZR_lt; reflexivity).
  rewrite sqrt_mult with (y := (IZR wide * IZR wide)%R); [|nra|nra].
  rewrite sqrt_square by lra.
  replace (IZR (dot_z p p) / (1 * 1) * (IZR (dot_z q q) / (1 * 1)))%R
    with (IZR (dot_z p p) * IZR (dot_z q q))%R by field.
  set (r := sqrt (IZR (dot_z p p) * IZR (dot_z q q))).
  destruct (Req_dec r 0) as [->|Hr].
  - unfold Rdiv. rewrite Rmult_0_l, Rinv_0. ring.
  - field. split; lra.
Qed.

(** ** The two theorems *)

(** [nats_low] never exceeds epsilon times the true distance, in any of the four spaces. *)
Theorem nats_low_le : forall s en ed p q, 0 <= en -> 0 < ed -> 0 < denominator s ->
  (val (nats_low s en ed (prepare s p) (prepare s q)) <= IZR en / IZR ed * dist s p q)%R.
Proof.
  intros s en ed p q Hn He Hd.
  assert (Re : (0 < IZR ed)%R) by (apply IZR_lt, He).
  assert (Rn : (0 <= IZR en)%R) by (apply IZR_le, Hn).
  destruct s as [den|den|den|]; cbn [nats_low dist denominator] in *.
  - cbn [prepare].
    eapply Rle_trans; [apply div_one_down; lia|]. rewrite val_times_one, !mult_IZR.
    right. field. split; [apply Rgt_not_eq, IZR_lt; lia | lra].
  - cbn [prepare]. rewrite euclidean_root by assumption.
    unfold val. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, one_real|].
    apply sqrt_div_low; [|nia].
    generalize (square_distance_z_nonneg p q) one_pos. intros. nia.
  - eapply Rle_trans; [apply div_one_down; lia|]. rewrite val_scale, !mult_IZR.
    unfold great_circle, radius_km.
    destruct (cosine_between den p q Hd) as [_ H].
    destruct (angle_low_le _ _ (cosine_range _ _ _ _) H) as [_ A].
    set (t := val (angle_low _)) in *. set (theta := acos _) in *.
    apply Rle_trans with (IZR en / IZR ed * (63710088 / 10000) * t)%R; [right; field; lra|].
    rewrite <- Rmult_assoc. apply Rmult_le_compat_l; [|exact A].
    repeat apply Rmult_le_pos; try lra. left. apply Rinv_0_lt_compat, Re.
  - eapply Rle_trans; [apply div_one_down; lia|]. rewrite val_scale.
    unfold angle. rewrite angle_ratio. cbn [prepare tl head hd].
    destruct (ratio_between (dot_z p q * wide) (dot_z p p * dot_z q q * (wide * wide)))
      as [H1 [_ H2]].
    { generalize (dot_z_nonneg p) (dot_z_nonneg q). unfold wide. nia. }
    { generalize (dot_z_square p q). unfold wide. nia. }
    destruct (angle_low_le _ _ H1 H2) as [_ A].
    unfold head, hd. set (t := val (angle_low _)) in *. set (theta := acos _) in *.
    apply Rle_trans with (IZR en / IZR ed * t)%R; [right; field; lra|].
    apply Rmult_le_compat_l; [|exact A].
    apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat, Re].
Qed.

(** [nats_high] is never below it. *)
Theorem nats_high_ge : forall s en ed p q, 0 <= en -> 0 < ed -> 0 < denominator s ->
  (IZR en / IZR ed * dist s p q <= val (nats_high s en ed (prepare s p) (prepare s q)))%R.
Proof.
  intros s en ed p q Hn He Hd.
  assert (Re : (0 < IZR ed)%R) by (apply IZR_lt, He).
  assert (Rn : (0 <= IZR en)%R) by (apply IZR_le, Hn).
  destruct s as [den|den|den|]; cbn [nats_high dist denominator] in *.
  - cbn [prepare].
    eapply Rle_trans; [|apply div_one_up; lia]. rewrite val_times_one, !mult_IZR.
    right. field. split; [apply Rgt_not_eq, IZR_lt; lia | lra].
  - cbn [prepare]. rewrite euclidean_root by assumption.
    unfold val. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, one_real|].
    apply sqrt_div_high; [|nia].
    generalize (square_distance_z_nonneg p q) one_pos. intros. nia.
  - eapply Rle_trans; [|apply div_one_up; lia]. rewrite val_scale, !mult_IZR.
    unfold great_circle, radius_km.
    destruct (cosine_between den p q Hd) as [H _].
    assert (A := angle_high_ge _ _ (cosine_range _ _ _ _) H).
    set (t := val (angle_high _)) in *. set (theta := acos _) in *.
    apply Rle_trans with (IZR en / IZR ed * (63710088 / 10000) * t)%R; [|right; field; lra].
    rewrite <- Rmult_assoc. apply Rmult_le_compat_l; [|exact A].
    repeat apply Rmult_le_pos; try lra. left. apply Rinv_0_lt_compat, Re.
  - eapply Rle_trans; [|apply div_one_up; lia]. rewrite val_scale.
    unfold angle. rewrite angle_ratio. cbn [prepare tl head hd].
    destruct (ratio_between (dot_z p q * wide) (dot_z p p * dot_z q q * (wide * wide)))
      as [H1 [H2 _]].
    { generalize (dot_z_nonneg p) (dot_z_nonneg q). unfold wide. nia. }
    { generalize (dot_z_square p q). unfold wide. nia. }
    assert (A := angle_high_ge _ _ H1 H2).
    unfold head, hd. set (t := val (angle_high _)) in *. set (theta := acos _) in *.
    apply Rle_trans with (IZR en / IZR ed * t)%R; [|right; field; lra].
    apply Rmult_le_compat_l; [|exact A].
    apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat, Re].
Qed.
