(** The triangle inequality and symmetry of the distances: what the passing over of far tiles rests
    on.  A matrix of given distances may break the first, so no tile of it is ever passed over. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Angle Distance Nats.
Import ListNotations.
Open Scope R_scope.

(** ** Linear combinations of vectors *)

Fixpoint combine2 (a : R) (u : list R) (b : R) (v : list R) : list R :=
  match u, v with
  | x :: u, y :: v => a * x + b * y :: combine2 a u b v
  | _, _ => []
  end.

Lemma dot_comm : forall u v, dot u v = dot v u.
Proof. induction u as [|a u IH]; intros [|b v]; simpl; try reflexivity. rewrite IH. ring. Qed.

Lemma combine2_length : forall a b u v, length u = length v -> length (combine2 a u b v) = length u.
Proof.
  induction u as [|x u IH]; intros [|y v] H; simpl in *; try discriminate; try reflexivity.
  f_equal. apply IH. lia.
Qed.

Lemma dot_combine2 : forall a b u v w, length u = length v -> length v = length w ->
  dot (combine2 a u b v) w = a * dot u w + b * dot v w.
Proof.
  induction u as [|x u IH]; intros [|y v] [|z w] H1 H2; simpl in *; try discriminate; try ring.
  rewrite IH by lia. ring.
Qed.

Lemma dot_combine2_both : forall a b c d u v x y n,
  length u = n -> length v = n -> length x = n -> length y = n ->
  dot (combine2 a u b v) (combine2 c x d y)
  = a * c * dot u x + a * d * dot u y + b * c * dot v x + b * d * dot v y.
Proof.
  intros a b c d u v x y n Hu Hv Hx Hy.
  rewrite dot_combine2 by (rewrite ?combine2_length; lia).
  rewrite (dot_comm u), (dot_comm v), !dot_combine2 by lia.
  rewrite (dot_comm x u), (dot_comm y u), (dot_comm x v), (dot_comm y v). ring.
Qed.

(** ** Euclidean distance *)

Lemma square_distance_dot : forall u v, length u = length v ->
  square_distance u v = dot (combine2 1 u (-1) v) (combine2 1 u (-1) v).
Proof.
  induction u as [|a u IH]; intros [|b v] H; simpl in *; try discriminate; try reflexivity.
  rewrite IH by lia. ring.
Qed.

Lemma square_distance_nonneg : forall u v, 0 <= square_distance u v.
Proof.
  induction u as [|a u IH]; intros [|b v]; simpl; try lra.
  specialize (IH v). generalize (Rle_0_sqr (a - b)). unfold Rsqr. lra.
Qed.

Lemma square_distance_comm : forall u v, square_distance u v = square_distance v u.
Proof. induction u as [|a u IH]; intros [|b v]; simpl; try reflexivity. rewrite IH. ring. Qed.

Theorem euclidean_triangle : forall u v w, length u = length v -> length v = length w ->
  euclidean u w <= euclidean u v + euclidean v w.
Proof.
  intros u v w H1 H2. unfold euclidean.
  assert (Huv := square_distance_nonneg u v). assert (Hvw := square_distance_nonneg v w).
  assert (E : square_distance u w = square_distance u v + square_distance v w
              + 2 * dot (combine2 1 u (-1) v) (combine2 1 v (-1) w)).
  { rewrite !square_distance_dot by lia.
    rewrite !(dot_combine2_both _ _ _ _ _ _ _ _ (length u)) by lia.
    rewrite (dot_comm w u), (dot_comm v u), (dot_comm w v). ring. }
  assert (C := cauchy_schwarz (combine2 1 u (-1) v) (combine2 1 v (-1) w)).
  rewrite <- !square_distance_dot in C by lia.
  set (c := dot (combine2 1 u (-1) v) (combine2 1 v (-1) w)) in *.
  set (a := sqrt (square_distance u v)). set (b := sqrt (square_distance v w)).
  assert (Ha : 0 <= a) by apply sqrt_pos. assert (Hb : 0 <= b) by apply sqrt_pos.
  assert (Ea : square_distance u v = a * a) by (symmetry; apply sqrt_sqrt, Huv).
  assert (Eb : square_distance v w = b * b) by (symmetry; apply sqrt_sqrt, Hvw).
  rewrite E, <- (sqrt_square (a + b)) by lra. apply sqrt_le_1_alt.
  rewrite Ea, Eb in *.
  assert (c <= a * b).
  { apply Rnot_lt_le. intro N. assert (0 <= a * b) by (apply Rmult_le_pos; assumption). nra. }
  nra.
Qed.

(** ** Angles *)

(** Three numbers that are cosines of three directions taken by pairs. *)
Lemma acos_triangle : forall x y z, -1 <= x <= 1 -> -1 <= y <= 1 -> -1 <= z <= 1 ->
  (x * y - z) * (x * y - z) <= (1 - x * x) * (1 - y * y) -> acos z <= acos x + acos y.
Proof.
  intros x y z Hx Hy Hz H.
  assert (Ax := acos_bound x). assert (Ay := acos_bound y). assert (Az := acos_bound z).
  apply Rnot_lt_le. intro Far.
  assert (L : cos (acos z) < cos (acos x + acos y)) by (apply cos_decreasing_1; lra).
  rewrite cos_plus, !cos_acos in L by assumption.
  assert (Sx : sin (acos x) * sin (acos x) = 1 - x * x).
  { generalize (sin2_cos2 (acos x)). unfold Rsqr. rewrite cos_acos by assumption. lra. }
  assert (Sy : sin (acos y) * sin (acos y) = 1 - y * y).
  { generalize (sin2_cos2 (acos y)). unfold Rsqr. rewrite cos_acos by assumption. lra. }
  assert (Px : 0 <= sin (acos x)) by (apply sin_ge_0; lra).
  assert (Py : 0 <= sin (acos y)) by (apply sin_ge_0; lra).
  assert (P := Rmult_le_pos _ _ Px Py).
  set (s := sin (acos x) * sin (acos y)) in *.
  assert (S2 : s * s = (1 - x * x) * (1 - y * y)) by (unfold s; rewrite <- Sx, <- Sy; ring).
  nra.
Qed.

(** Gram's inequality. *)
Lemma gram : forall u v w n, length u = n -> length v = n -> length w = n -> 0 < dot v v ->
  (dot v v * dot u w - dot u v * dot v w) * (dot v v * dot u w - dot u v * dot v w)
  <= (dot v v * dot u u - dot u v * dot u v) * (dot v v * dot w w - dot v w * dot v w).
Proof.
  intros u v w n Hu Hv Hw P.
  assert (C := cauchy_schwarz (combine2 (dot v v) u (- dot u v) v)
                              (combine2 (dot v v) w (- dot v w) v)).
  rewrite !(dot_combine2_both _ _ _ _ _ _ _ _ n) in C by assumption.
  rewrite (dot_comm v u), (dot_comm w v) in C. revert C P.
  generalize (dot v v) (dot u v) (dot v w) (dot u w) (dot u u) (dot w w).
  intros V a b c U W C P.
  assert (0 <= V * V * ((V * U - a * a) * (V * W - b * b) - (V * c - a * b) * (V * c - a * b))).
  { replace (V * V * ((V * U - a * a) * (V * W - b * b) - (V * c - a * b) * (V * c - a * b)))
      with ((V * V * U + V * (- a) * a + - a * V * a + - a * - a * V)
            * (V * V * W + V * (- b) * b + - b * V * b + - b * - b * V)
            - (V * V * c + V * (- b) * a + - a * V * b + - a * - b * V)
              * (V * V * c + V * (- b) * a + - a * V * b + - a * - b * V)) by ring.
    lra. }
  assert (0 < V * V) by nra. nra.
Qed.

Definition cosine (u v : list R) : R := dot u v / sqrt (dot u u * dot v v).

Lemma cosine_bound : forall u v, 0 < dot u u -> 0 < dot v v ->
  -1 <= cosine u v <= 1 /\ dot u v = cosine u v * (sqrt (dot u u) * sqrt (dot v v)).
Proof.
  intros u v Hu Hv. unfold cosine. assert (C := cauchy_schwarz u v).
  rewrite sqrt_mult by lra.
  assert (Pu := sqrt_lt_R0 _ Hu). assert (Pv := sqrt_lt_R0 _ Hv).
  assert (Eu := sqrt_sqrt (dot u u) ltac:(lra)). assert (Ev := sqrt_sqrt (dot v v) ltac:(lra)).
  set (a := sqrt (dot u u)) in *. set (b := sqrt (dot v v)) in *.
  assert (P : 0 < a * b) by (apply Rmult_lt_0_compat; assumption).
  assert (I := Rinv_0_lt_compat _ P). assert (II : a * b * / (a * b) = 1) by (apply Rinv_r; lra).
  rewrite <- Eu, <- Ev in C.
  assert (- (a * b) <= dot u v <= a * b) by (split; nra).
  split; [unfold Rdiv; split; nra|]. field. split; lra.
Qed.

Theorem angle_triangle : forall u v w n, length u = n -> length v = n -> length w = n ->
  0 < dot u u -> 0 < dot v v -> 0 < dot w w -> angle u w <= angle u v + angle v w.
Proof.
  intros u v w n Lu Lv Lw Hu Hv Hw.
  change (acos (cosine u w) <= acos (cosine u v) + acos (cosine v w)).
  destruct (cosine_bound u v Hu Hv) as [B1 E1]. destruct (cosine_bound v w Hv Hw) as [B2 E2].
  destruct (cosine_bound u w Hu Hw) as [B3 E3].
  apply acos_triangle; try assumption.
  assert (G := gram u v w n Lu Lv Lw Hv). rewrite E1, E2, E3 in G.
  set (x := cosine u v) in *. set (y := cosine v w) in *. set (z := cosine u w) in *.
  assert (Eu := sqrt_sqrt (dot u u) ltac:(lra)). assert (Ev := sqrt_sqrt (dot v v) ltac:(lra)).
  assert (Ew := sqrt_sqrt (dot w w) ltac:(lra)).
  assert (Pu := sqrt_lt_R0 _ Hu). assert (Pv := sqrt_lt_R0 _ Hv). assert (Pw := sqrt_lt_R0 _ Hw).
  set (a := sqrt (dot u u)) in *. set (b := sqrt (dot v v)) in *. set (c := sqrt (dot w w)) in *.
  clearbody a b c x y z. rewrite <- Eu, <- Ev, <- Ew in G. clear Eu Ev Ew E1 E2 E3.
  assert (0 <= (a * a * (c * c) * (b * b * (b * b)))
               * ((1 - x * x) * (1 - y * y) - (x * y - z) * (x * y - z))).
  { replace (a * a * (c * c) * (b * b * (b * b))
             * ((1 - x * x) * (1 - y * y) - (x * y - z) * (x * y - z)))
      with ((b * b * (a * a) - x * (a * b) * (x * (a * b)))
            * (b * b * (c * c) - y * (b * c) * (y * (b * c)))
            - (b * b * (z * (a * c)) - x * (a * b) * (y * (b * c)))
              * (b * b * (z * (a * c)) - x * (a * b) * (y * (b * c)))) by ring.
    lra. }
  assert (0 < a * a * (c * c) * (b * b * (b * b))).
  { repeat apply Rmult_lt_0_compat; assumption. }
  nra.
Qed.

(** ** All spaces *)

(** Records of one space: as many coordinates as all others, and for directions a length. *)
Definition fits (s : space) (n : nat) (p : list Z) : Prop :=
  match s with
  | Given _ => True
  | Euclidean _ => length p = n
  | Sphere _ => True
  | Directions => length p = n /\ (0 < dot_z p p)%Z
  end.

Definition computed (s : space) : Prop := match s with Given _ => False | _ => True end.

Lemma place_angle : forall lat lon lat' lon',
  acos (dot (place lat lon) (place lat' lon')) = angle (place lat lon) (place lat' lon').
Proof.
  intros. unfold angle. rewrite !place_unit, Rmult_1_l, sqrt_1. f_equal. field.
Qed.

Theorem triangle : forall s n p q r, computed s -> (0 < denominator s)%Z ->
  fits s n p -> fits s n q -> fits s n r -> dist s p r <= dist s p q + dist s q r.
Proof.
  intros s n p q r Hs Hd Hp Hq Hr.
  destruct s as [den|den|den|]; simpl in *; [contradiction| | |].
  - apply euclidean_triangle; unfold reals; rewrite !map_length; lia.
  - unfold great_circle. rewrite !place_angle, <- Rmult_plus_distr_l.
    apply Rmult_le_compat_l; [unfold radius_km; lra|].
    apply angle_triangle with 3%nat; try reflexivity; rewrite place_unit; lra.
  - destruct Hp as [Lp Pp], Hq as [Lq Pq], Hr as [Lr Pr].
    apply angle_triangle with n; unfold reals; rewrite ?map_length; try assumption;
      fold (reals 1 p) (reals 1 q) (reals 1 r); rewrite dot_reals by lia;
      (apply Rmult_lt_0_compat; [apply IZR_lt; assumption | lra]).
Qed.

Theorem symmetry : forall s p q, computed s -> dist s p q = dist s q p.
Proof.
  intros s p q Hs. destruct s as [den|den|den|]; simpl in *; [contradiction| | |].
  - unfold euclidean. rewrite square_distance_comm. reflexivity.
  - unfold great_circle. rewrite dot_comm. reflexivity.
  - unfold angle. rewrite dot_comm, (Rmult_comm (dot (reals 1 p) (reals 1 p))). reflexivity.
Qed.
