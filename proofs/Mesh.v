(** Randomised snapping.  A point of a triangle takes one of its three vertices with its barycentric
    weight and draws from that vertex's row; so the probability f of an output is linear in the
    triangle.  Every triangle by itself here, and a segment that is cut where it passes from one to the
    next; that the cuts exist between all points of an area is in Cover.v and MeshFile.v. *)

From Coq Require Import Reals Lra Lia List.
From Panda Require Import Processing.
Import ListNotations.
Open Scope R_scope.

Definition point : Type := R * R.

Definition length2 (u : point) : R := sqrt (fst u * fst u + snd u * snd u).
Definition minus2 (p q : point) : point := (fst p - fst q, snd p - snd q).
Definition distance (p q : point) : R := length2 (minus2 p q).
Definition dot2 (u v : point) : R := fst u * fst v + snd u * snd v.

(** The point with barycentric weights b, and a value that is given at the vertices. *)
Definition mix (b1 b2 b3 : R) (p1 p2 p3 : point) : point :=
  (b1 * fst p1 + b2 * fst p2 + b3 * fst p3, b1 * snd p1 + b2 * snd p2 + b3 * snd p3).
Definition mixed (b1 b2 b3 z1 z2 z3 : R) : R := b1 * z1 + b2 * z2 + b3 * z3.
Definition weights3 (b1 b2 b3 : R) : Prop := 0 <= b1 /\ 0 <= b2 /\ 0 <= b3 /\ b1 + b2 + b3 = 1.

Lemma cauchy2 : forall u v, dot2 u v <= length2 u * length2 v.
Proof.
  intros [a b] [c e]. unfold dot2, length2. simpl.
  rewrite <- sqrt_mult by nra.
  destruct (Rle_dec 0 (a * c + b * e)) as [H|H].
  - rewrite <- (sqrt_square (a * c + b * e)) by exact H. apply sqrt_le_1_alt.
    assert (0 <= (a * e - b * c) * (a * e - b * c)) by apply Rle_0_sqr. nra.
  - apply Rle_trans with 0; [lra | apply sqrt_pos].
Qed.

(** Inside one triangle.  z_i are the probabilities of the output at its vertices p_i, g the gradient of
    their linear interpolation, and |g| <= eps_c times the smallest of them: then the probabilities at
    two points differ by at most e^(eps_c |p - q|). *)
Theorem triangle_private : forall (p1 p2 p3 g : point) (z1 z2 z3 least eps_c : R),
  z1 - z3 = dot2 g (minus2 p1 p3) -> z2 - z3 = dot2 g (minus2 p2 p3) ->
  0 < least -> least <= z1 -> least <= z2 -> least <= z3 ->
  0 <= eps_c -> length2 g <= eps_c * least ->
  forall b1 b2 b3 c1 c2 c3, weights3 b1 b2 b3 -> weights3 c1 c2 c3 ->
  mixed b1 b2 b3 z1 z2 z3
  <= exp (eps_c * distance (mix b1 b2 b3 p1 p2 p3) (mix c1 c2 c3 p1 p2 p3))
     * mixed c1 c2 c3 z1 z2 z3.
Proof.
  intros [x1 y1] [x2 y2] [x3 y3] [gx gy] z1 z2 z3 least eps_c G1 G2 L0 L1 L2 L3 He Hg
    b1 b2 b3 c1 c2 c3 (B1 & B2 & B3 & B) (C1 & C2 & C3 & C).
  set (p := mix b1 b2 b3 _ _ _). set (q := mix c1 c2 c3 _ _ _).
  assert (Lin : mixed b1 b2 b3 z1 z2 z3 - mixed c1 c2 c3 z1 z2 z3 = dot2 (gx, gy) (minus2 p q)).
  { unfold mixed, p, q, mix, dot2, minus2 in *. simpl in *.
    replace b3 with (1 - b1 - b2) by lra. replace c3 with (1 - c1 - c2) by lra.
    replace z1 with (z3 + (gx * (x1 - x3) + gy * (y1 - y3))) by lra.
    replace z2 with (z3 + (gx * (x2 - x3) + gy * (y2 - y3))) by lra. ring. }
  assert (Low : least <= mixed c1 c2 c3 z1 z2 z3) by (unfold mixed; nra).
  assert (D0 : 0 <= distance p q) by apply sqrt_pos.
  assert (CS := cauchy2 (gx, gy) (minus2 p q)). fold (distance p q) in CS.
  set (zp := mixed b1 b2 b3 z1 z2 z3) in *. set (zq := mixed c1 c2 c3 z1 z2 z3) in *.
  assert (K : zp - zq <= eps_c * distance p q * zq).
  { rewrite Lin. apply Rle_trans with (1 := CS).
    apply Rle_trans with (eps_c * least * distance p q); [apply Rmult_le_compat_r; assumption|].
    replace (eps_c * least * distance p q) with (eps_c * distance p q * least) by ring.
    apply Rmult_le_compat_l; [apply Rmult_le_pos; assumption | exact Low]. }
  apply Rle_trans with ((1 + eps_c * distance p q) * zq); [lra|].
  apply Rmult_le_compat_r; [lra | apply exp_ineq1_le].
Qed.

(** ** Along a segment *)

(** The point a share t of the way from p to q. *)
Definition along (p q : point) (t : R) : point :=
  (fst p + t * (fst q - fst p), snd p + t * (snd q - snd p)).

Lemma along_distance : forall p q s t, s <= t ->
  distance (along p q s) (along p q t) = (t - s) * distance p q.
Proof.
  intros [px py] [qx qy] s t H. unfold distance, along, minus2, length2. simpl.
  set (b := (px - qx) * (px - qx) + (py - qy) * (py - qy)).
  replace ((t - s) * sqrt b) with (sqrt ((t - s) * (t - s)) * sqrt b)
    by (rewrite sqrt_square by lra; reflexivity).
  rewrite <- sqrt_mult_alt by nra. f_equal. unfold b. ring.
Qed.

(** The segment from p to q is cut at t_0 <= t_1 <= .. where it passes from triangle to triangle; f is
    the probability of an output as a function of the point. *)
Fixpoint private_steps (f : point -> R) (epsilon : R) (p q : point) (t : R) (ts : list R) : Prop :=
  match ts with
  | [] => True
  | s :: ts =>
      t <= s /\ f (along p q t) <= exp (epsilon * distance (along p q t) (along p q s))
                                   * f (along p q s)
      /\ private_steps f epsilon p q s ts
  end.

(** Private in every triangle that the segment crosses: private between its ends. *)
Theorem segment_private : forall f epsilon p q ts t,
  private_steps f epsilon p q t ts ->
  f (along p q t) <= exp (epsilon * ((last ts t - t) * distance p q)) * f (along p q (last ts t)).
Proof.
  intros f epsilon p q. induction ts as [|s ts IH]; intros t H.
  - simpl. replace (epsilon * ((t - t) * distance p q)) with 0 by ring. rewrite exp_0. lra.
  - destruct H as (Hs & Hf & Hr). rewrite along_distance in Hf by exact Hs.
    specialize (IH s Hr).
    assert (L : last (s :: ts) t = last ts s).
    { clear. revert s. induction ts as [|a ts IH]; intro s; [reflexivity|].
      change (last (a :: ts) t = last (a :: ts) s). clear IH. revert a.
      induction ts as [|b ts IH]; intro a; [reflexivity | apply (IH b)]. }
    rewrite L. set (e := last ts s) in *.
    replace (epsilon * ((e - t) * distance p q))
      with (epsilon * ((s - t) * distance p q) + epsilon * ((e - s) * distance p q)) by ring.
    rewrite exp_plus, Rmult_assoc. apply Rle_trans with (1 := Hf).
    apply Rmult_le_compat_l; [left; apply exp_pos | exact IH].
Qed.

(** From the first point of the segment to the last. *)
Corollary convex_private : forall f epsilon p q ts,
  private_steps f epsilon p q 0 ts -> last ts 0 = 1 ->
  f p <= exp (epsilon * distance p q) * f q.
Proof.
  intros f epsilon [px py] [qx qy] ts H L. generalize (segment_private f epsilon _ _ ts 0 H).
  rewrite L. unfold along at 1 2. simpl.
  replace (px + 0 * (qx - px)) with px by ring. replace (py + 0 * (qy - py)) with py by ring.
  replace (px + 1 * (qx - px)) with qx by ring. replace (py + 1 * (qy - py)) with qy by ring.
  replace ((1 - 0) * distance (px, py) (qx, qy)) with (distance (px, py) (qx, qy)) by ring.
  auto.
Qed.

(** A projection that lengthens no distance by more than a factor [stretch] costs that factor. *)
Corollary projected : forall (f : point -> R) epsilon stretch true_distance p q,
  0 <= epsilon -> 0 <= f q -> f p <= exp (epsilon * distance p q) * f q ->
  distance p q <= stretch * true_distance ->
  f p <= exp (epsilon * stretch * true_distance) * f q.
Proof.
  intros f epsilon stretch D p q He Hf H Hs. apply Rle_trans with (1 := H).
  apply Rmult_le_compat_r; [exact Hf|]. apply exp_le. rewrite Rmult_assoc.
  apply Rmult_le_compat_l; assumption.
Qed.
