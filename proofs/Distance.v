(** Distances.  A record is a list of whole numbers; what they mean depends on the space:

    - [Given den]: the record's index, then its distances to all records, over den (a matrix, roads);
    - [Euclidean den]: coordinates over den, any number of them;
    - [Sphere den]: latitude and longitude over den, in degrees, on a sphere of 6371.0088 km;
    - [Directions]: a vector, of which the direction counts; the distance is the angle.

    [dist] is the true distance, a real number. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Angle.
Import ListNotations.
Open Scope Z_scope.

Inductive space :=
  | Given (den : Z)
  | Euclidean (den : Z)
  | Sphere (den : Z)
  | Directions.

(** ** The true distance *)

Definition reals (den : Z) (p : list Z) : list R := map (fun a => (IZR a / IZR den)%R) p.

Fixpoint dot (u v : list R) : R :=
  match u, v with
  | a :: u, b :: v => (a * b + dot u v)%R
  | _, _ => 0%R
  end.

Fixpoint square_distance (u v : list R) : R :=
  match u, v with
  | a :: u, b :: v => ((a - b) * (a - b) + square_distance u v)%R
  | _, _ => 0%R
  end.

Definition euclidean (u v : list R) : R := sqrt (square_distance u v).

(** The angle between two vectors, whatever their lengths. *)
Definition angle (u v : list R) : R := acos (dot u v / sqrt (dot u u * dot v v)).

(** A place on the unit sphere. *)
Definition place (lat lon : R) : list R :=
  [(cos lat * cos lon)%R; (cos lat * sin lon)%R; sin lat].

Definition radius_km : R := (63710088 / 10000)%R.

Definition great_circle (lat lon lat' lon' : R) : R :=
  (radius_km * acos (dot (place lat lon) (place lat' lon')))%R.

Fixpoint entry (l : list Z) (i : Z) : Z :=
  match l with
  | [] => 0
  | a :: l => if i =? 0 then a else entry l (i - 1)
  end.

Definition head (p : list Z) : Z := hd 0 p.

Definition dist (s : space) (p q : list Z) : R :=
  match s with
  | Given den => (IZR (entry (tl p) (head q)) / IZR den)%R
  | Euclidean den => euclidean (reals den p) (reals den q)
  | Sphere den =>
      great_circle (degrees (entry p 0) den) (degrees (entry p 1) den)
                   (degrees (entry q 0) den) (degrees (entry q 1) den)
  | Directions => angle (reals 1 p) (reals 1 q)
  end.

(** Cauchy and Schwarz. *)
Lemma dot_self : forall u, (0 <= dot u u)%R.
Proof. induction u as [|a u IH]; simpl; [lra|]. nra. Qed.

Lemma cauchy_schwarz : forall u v, (dot u v * dot u v <= dot u u * dot v v)%R.
Proof.
  induction u as [|a u IH]; intros [|b v]; simpl; rewrite ?Rmult_0_l, ?Rmult_0_r; try lra.
  - specialize (IH v). generalize (dot_self u) (dot_self v). revert IH.
    generalize (dot u v) (dot u u) (dot v v). intros d U V H HU HV.
    assert (K : (0 <= a * a * V + b * b * U - 2 * (a * b * d))%R).
    { destruct HU as [HU|HU].
      - assert (0 <= U * (a * a * V + b * b * U - 2 * (a * b * d)))%R.
        { assert (0 <= (a * d - b * U) * (a * d - b * U))%R by apply Rle_0_sqr. nra. }
        nra.
      - subst U. assert (d = 0)%R by nra. subst d. nra. }
    nra.
Qed.

(** The haversine formula, 2 R arcsin sqrt(a), is the same distance. *)
Theorem haversine_formula : forall lat lon lat' lon',
  let a := (Rsqr (sin ((lat - lat') / 2)) + cos lat * cos lat' * Rsqr (sin ((lon - lon') / 2)))%R in
  (0 <= a <= 1)%R /\ great_circle lat lon lat' lon' = (2 * radius_km * asin (sqrt a))%R.
Proof.
  intros lat lon lat' lon' a.
  assert (Half : forall t, Rsqr (sin (t / 2)) = ((1 - cos t) / 2)%R).
  { intro t. replace t with (2 * (t / 2))%R at 2 by field. rewrite cos_2a_sin. unfold Rsqr. field. }
  assert (C := sin2_cos2). unfold Rsqr in C.
  assert (E : dot (place lat lon) (place lat' lon') = (1 - 2 * a)%R).
  { unfold a. rewrite !Half, !cos_minus. simpl. field. }
  assert (B : (-1 <= dot (place lat lon) (place lat' lon') <= 1)%R).
  { simpl. generalize (C lat) (C lat') (C lon) (C lon').
    generalize (cos lat) (sin lat) (cos lat') (sin lat') (cos lon) (sin lon) (cos lon') (sin lon').
    intros c s c' s' x y x' y' H1 H2 H3 H4.
    assert (0 <= (c * x - c' * x') * (c * x - c' * x'))%R by apply Rle_0_sqr.
    assert (0 <= (c * y - c' * y') * (c * y - c' * y'))%R by apply Rle_0_sqr.
    assert (0 <= (s - s') * (s - s'))%R by apply Rle_0_sqr.
    assert (0 <= (c * x + c' * x') * (c * x + c' * x'))%R by apply Rle_0_sqr.
    assert (0 <= (c * y + c' * y') * (c * y + c' * y'))%R by apply Rle_0_sqr.
    assert (0 <= (s + s') * (s + s'))%R by apply Rle_0_sqr.
    assert (N : (c * x * (c * x) + c * y * (c * y) + s * s = 1)%R).
    { replace (c * x * (c * x) + c * y * (c * y))%R with (c * c * (x * x + y * y))%R by ring. nra. }
    assert (N' : (c' * x' * (c' * x') + c' * y' * (c' * y') + s' * s' = 1)%R).
    { replace (c' * x' * (c' * x') + c' * y' * (c' * y'))%R with (c' * c' * (x' * x' + y' * y'))%R
        by ring. nra. }
    split; lra. }
  split; [lra|].
  unfold great_circle. rewrite E.
  assert (A : (0 <= a <= 1)%R) by lra.
  assert (S1 : (0 <= sqrt a <= 1)%R).
  { split; [apply sqrt_pos|]. rewrite <- sqrt_1. apply sqrt_le_1; lra. }
  assert (T := asin_bound (sqrt a)).
  assert (T0 : (0 <= asin (sqrt a))%R).
  { apply Rnot_lt_le. intro N.
    assert (sin (asin (sqrt a)) < 0)%R by (apply sin_lt_0_var; lra).
    rewrite sin_asin in H by lra. lra. }
  replace (1 - 2 * a)%R with (cos (2 * asin (sqrt a))).
  - rewrite acos_cos by lra. ring.
  - rewrite cos_2a_sin, sin_asin by lra. rewrite Rmult_assoc, sqrt_sqrt by lra. ring.
Qed.
