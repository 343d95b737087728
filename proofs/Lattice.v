(** Triangles of a lattice of equilateral triangles, seen as in Cover.v.  A triangle is (i, j, e), e = 1 or
    -1: the corners (i, j), (i + e, j), (i, j + e).  With spacing s the point (u, v) lies at
    s (u + v / 2, v sqrt 3 / 2). *)

From Coq Require Import ZArith Reals Lra Lia.
From Panda Require Import Distance Processing Mesh Cover.
Open Scope R_scope.

(** How far from the middle, in spacings, squared: of a vertex, and of the farthest of a triangle. *)
Definition squared (i j : Z) : Z := (i * i + i * j + j * j)%Z.
Definition farthest (i j e : Z) : Z :=
  Z.max (squared i j) (Z.max (squared (i + e) j) (squared i (j + e))).

(** The point (u, v) of the lattice in the plane, the side of a triangle being [side] radii. *)
Definition place_of (side : R) (p : point) : point :=
  (side * (fst p + snd p / 2), side * (snd p * (sqrt 3 / 2))).

Lemma root3 : sqrt 3 * sqrt 3 = 3.
Proof. apply sqrt_sqrt. lra. Qed.

Lemma place_square : forall side p, dot2 (place_of side p) (place_of side p)
  = side * side * (fst p * fst p + fst p * snd p + snd p * snd p).
Proof.
  intros side [u v]. unfold dot2, place_of. cbn [fst snd]. generalize root3. generalize (sqrt 3).
  intros r H. replace (side * (v * (r / 2)) * (side * (v * (r / 2))))
    with (side * side * (v * v) * (r * r) / 4) by field. rewrite H. field.
Qed.

Lemma place_along : forall side P Q t,
  place_of side (along P Q t) = along (place_of side P) (place_of side Q) t.
Proof. intros side [a b] [c e] t. unfold place_of, along. simpl. f_equal; field. Qed.

(** (a, b) are the weights of the second and third corner: the point, and the value there. *)
Definition at_weights (i j e : Z) (a b : R) : point := (IZR i + IZR e * a, IZR j + IZR e * b).

Lemma triangle_square : forall i j e a b, (e = 1 \/ e = -1)%Z -> 0 <= a -> 0 <= b -> a + b <= 1 ->
  let p := at_weights i j e a b in
  fst p * fst p + fst p * snd p + snd p * snd p <= IZR (farthest i j e).
Proof.
  intros i j e a b He Ha Hb Hab p.
  assert (F1 : IZR (squared i j) <= IZR (farthest i j e)) by (apply IZR_le; unfold farthest; lia).
  assert (F2 : IZR (squared (i + e) j) <= IZR (farthest i j e)) by (apply IZR_le; unfold farthest; lia).
  assert (F3 : IZR (squared i (j + e)) <= IZR (farthest i j e)) by (apply IZR_le; unfold farthest; lia).
  unfold squared in *. rewrite ?plus_IZR, ?mult_IZR, ?plus_IZR in *.
  set (far := IZR (farthest i j e)) in *. set (x := IZR i) in *. set (y := IZR j) in *.
  assert (E : IZR e * IZR e = 1) by (rewrite <- mult_IZR; destruct He; subst; reflexivity).
  set (s := IZR e) in *. unfold p, at_weights. cbn [fst snd]. fold x y s.
  apply Rle_trans with ((1 - a - b) * (x * x + x * y + y * y)
    + a * ((x + s) * (x + s) + (x + s) * y + y * y) + b * (x * x + x * (y + s) + (y + s) * (y + s))).
  - assert (K : (1 - a - b) * (x * x + x * y + y * y)
      + a * ((x + s) * (x + s) + (x + s) * y + y * y) + b * (x * x + x * (y + s) + (y + s) * (y + s))
      - ((x + s * a) * (x + s * a) + (x + s * a) * (y + s * b) + (y + s * b) * (y + s * b))
      = s * s * (a * (1 - a) + b * (1 - b) - a * b)) by ring.
    rewrite E in K. assert (0 <= a * (1 - a) + b * (1 - b) - a * b) by nra. lra.
  - nra.
Qed.

Section Triangle.
Variables (side eps t : R) (i j e : Z) (z1 z2 z3 : R).
Hypothesis side_pos : 0 < side.
Hypothesis eps_nonneg : 0 <= eps.
Hypothesis sign : (e = 1 \/ e = -1)%Z.
Hypotheses (Z1 : 0 <= z1) (Z2 : 0 <= z2) (Z3 : 0 <= z3).
Let least := Rmin z1 (Rmin z2 z3).
Let changes := (z1 - z2) * (z1 - z2) + (z2 - z3) * (z2 - z3) + (z3 - z1) * (z3 - z1).
Hypothesis near_t : side * side * IZR (farthest i j e) <= t.
Hypothesis slow : 2 * changes * ((1 + t) * (1 + t)) <= 3 * (side * side) * (eps * eps) * (least * least).

Definition value3 (a b : R) : R := (1 - a - b) * z1 + a * z2 + b * z3.

Lemma triangle_step : forall a b a' b', 0 <= a -> 0 <= b -> a + b <= 1 ->
  0 <= a' -> 0 <= b' -> a' + b' <= 1 ->
  value3 a b <= exp (eps * angle_between (place_of side (at_weights i j e a b))
                                         (place_of side (at_weights i j e a' b'))) * value3 a' b'.
Proof.
  intros a b a' b' Ha Hb Hab Ha' Hb' Hab'.
  set (P := place_of side (at_weights i j e a b)). set (Q := place_of side (at_weights i j e a' b')).
  assert (S2 : 0 < side * side) by (apply Rmult_lt_0_compat; assumption).
  assert (TP : dot2 P P <= t).
  { unfold P. rewrite place_square. apply Rle_trans with (2 := near_t).
    apply Rmult_le_compat_l; [lra | apply triangle_square; assumption]. }
  assert (TQ : dot2 Q Q <= t).
  { unfold Q. rewrite place_square. apply Rle_trans with (2 := near_t).
    apply Rmult_le_compat_l; [lra | apply triangle_square; assumption]. }
  assert (T0 : 0 <= t) by (apply Rle_trans with (2 := TP), dot2_nonneg).
  assert (L1 : least <= z1) by apply Rmin_l.
  assert (L2 : least <= z2) by (apply Rle_trans with (1 := Rmin_r _ _), Rmin_l).
  assert (L3 : least <= z3) by (apply Rle_trans with (1 := Rmin_r _ _), Rmin_r).
  assert (L0 : 0 <= least) by (unfold least; repeat apply Rmin_glb; assumption).
  destruct L0 as [L0|L0].
  - set (k := eps / (1 + t)).
    assert (K0 : 0 <= k) by (apply Rmult_le_pos; [exact eps_nonneg | left; apply Rinv_0_lt_compat; lra]).
    apply Rle_trans with (exp (k * distance P Q) * value3 a' b').
    + set (r := sqrt 3). assert (R3 : r * r = 3) by apply root3.
      assert (R0 : 0 < r) by (apply sqrt_lt_R0; lra).
      assert (E : IZR e * IZR e = 1) by (rewrite <- mult_IZR; destruct sign; subst; reflexivity).
      set (s := IZR e) in *.
      set (g := (s * (z2 - z1) / side, s * (2 * z3 - z1 - z2) / (r * side))).
      set (p1 := place_of side (at_weights i j e 0 0)). set (p2 := place_of side (at_weights i j e 1 0)).
      set (p3 := place_of side (at_weights i j e 0 1)).
      assert (Mix : forall x y, place_of side (at_weights i j e x y) = mix (1 - x - y) x y p1 p2 p3).
      { intros x y. unfold p1, p2, p3, mix, place_of, at_weights. cbn [fst snd]. f_equal; field. }
      assert (G := triangle_private p1 p2 p3 g z1 z2 z3 least k).
      unfold P, Q. rewrite !Mix. unfold value3.
      change ((1 - a - b) * z1 + a * z2 + b * z3) with (mixed (1 - a - b) a b z1 z2 z3).
      change ((1 - a' - b') * z1 + a' * z2 + b' * z3) with (mixed (1 - a' - b') a' b' z1 z2 z3).
      apply G; try assumption; try (unfold weights3; lra).
      * unfold g, p1, p3, dot2, minus2, place_of, at_weights. cbn [fst snd]. fold s r.
        replace (s * (z2 - z1) / side * (side * (IZR i + s * 0 + (IZR j + s * 0) / 2) -
           side * (IZR i + s * 0 + (IZR j + s * 1) / 2)) + s * (2 * z3 - z1 - z2) / (r * side) *
           (side * ((IZR j + s * 0) * (r / 2)) - side * ((IZR j + s * 1) * (r / 2))))
          with (s * s * (z1 - z3)) by (field; lra). rewrite E. ring.
      * unfold g, p2, p3, dot2, minus2, place_of, at_weights. cbn [fst snd]. fold s r.
        replace (s * (z2 - z1) / side * (side * (IZR i + s * 1 + (IZR j + s * 0) / 2) -
           side * (IZR i + s * 0 + (IZR j + s * 1) / 2)) + s * (2 * z3 - z1 - z2) / (r * side) *
           (side * ((IZR j + s * 0) * (r / 2)) - side * ((IZR j + s * 1) * (r / 2))))
          with (s * s * (z2 - z3)) by (field; lra). rewrite E. ring.
      * unfold length2. rewrite <- (sqrt_square (k * least)) by (apply Rmult_le_pos; lra).
        apply sqrt_le_1_alt. unfold g. cbn [fst snd].
        replace (s * (z2 - z1) / side * (s * (z2 - z1) / side) +
                 s * (2 * z3 - z1 - z2) / (r * side) * (s * (2 * z3 - z1 - z2) / (r * side)))
          with (s * s * ((z2 - z1) * (z2 - z1) + (2 * z3 - z1 - z2) * (2 * z3 - z1 - z2) / (r * r))
                / (side * side)) by (field; lra).
        rewrite E, R3.
        replace (1 * ((z2 - z1) * (z2 - z1) + (2 * z3 - z1 - z2) * (2 * z3 - z1 - z2) / 3))
          with (2 / 3 * changes) by (unfold changes; field).
        apply Rmult_le_reg_r with (side * side * ((1 + t) * (1 + t)) * 3).
        { apply Rmult_lt_0_compat; [|lra]. apply Rmult_lt_0_compat; [exact S2|].
          apply Rmult_lt_0_compat; lra. }
        replace (2 / 3 * changes / (side * side) * (side * side * ((1 + t) * (1 + t)) * 3))
          with (2 * changes * ((1 + t) * (1 + t))) by (field; lra).
        unfold k. replace (eps / (1 + t) * least * (eps / (1 + t) * least) *
          (side * side * ((1 + t) * (1 + t)) * 3))
          with (3 * (side * side) * (eps * eps) * (least * least)) by (field; lra). exact slow.
    + apply Rmult_le_compat_r; [unfold value3; nra|]. apply exp_le.
      assert (D := stretch P Q t TP TQ). unfold k.
      replace (eps * angle_between P Q) with (eps / (1 + t) * ((1 + t) * angle_between P Q)) by (field; lra).
      apply Rmult_le_compat_l; assumption.
  - rewrite <- L0 in slow. assert (0 < (1 + t) * (1 + t)) by (apply Rmult_lt_0_compat; lra).
    assert (C : changes <= 0) by nra. unfold changes in C.
    assert (Q12 := Rle_0_sqr (z1 - z2)). assert (Q23 := Rle_0_sqr (z2 - z3)).
    assert (Q31 := Rle_0_sqr (z3 - z1)). unfold Rsqr in *.
    assert (D1 : z1 - z2 = 0) by (apply Rsqr_0_uniq; unfold Rsqr; lra).
    assert (D2 : z2 - z3 = 0) by (apply Rsqr_0_uniq; unfold Rsqr; lra).
    assert (M : least = z1).
    { unfold least. rewrite Rmin_left; [reflexivity|]. apply Rmin_glb; lra. }
    assert (V : forall x y, value3 x y = 0).
    { intros x y. unfold value3. replace z1 with 0 by lra. replace z2 with 0 by lra.
      replace z3 with 0 by lra. ring. }
    rewrite !V. lra.
Qed.

End Triangle.
