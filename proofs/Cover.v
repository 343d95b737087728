(** The geometry of meshes.  The plane is the sphere seen from its centre: the point (x, y) stands for the
    direction (1, x, y), lengths in radii.  A length in the plane is at most 1 + t times the angle within
    sqrt t of the middle; angles along a straight line add up; and a segment that closed sets cover is
    a chain of steps each of which stays in one of them. *)

From Coq Require Import Reals Lra Lia List Classical.
From Panda Require Import Distance Mesh.
Import ListNotations.
Open Scope R_scope.

(** ** Angles between directions *)

Definition direction (p : point) : list R := [1; fst p; snd p].
Definition angle_between (p q : point) : R := angle (direction p) (direction q).

Lemma dot_direction : forall p q, dot (direction p) (direction q) = 1 + dot2 p q.
Proof. intros [a b] [c e]. unfold direction, dot2. simpl. ring. Qed.

Lemma square_pos : forall p, 0 < 1 + dot2 p p.
Proof. intros [a b]. unfold dot2. simpl. nra. Qed.

(** (1 + |p|^2) (1 + |q|^2) - (1 + p q)^2 = |p - q|^2 + (p x q)^2. *)
Lemma gram : forall p q,
  (1 + dot2 p p) * (1 + dot2 q q) - (1 + dot2 p q) * (1 + dot2 p q)
  = dot2 (minus2 p q) (minus2 p q) + (fst p * snd q - snd p * fst q) * (fst p * snd q - snd p * fst q).
Proof. intros [a b] [c e]. unfold dot2, minus2. simpl. ring. Qed.

Definition cosine (p q : point) : R := (1 + dot2 p q) / sqrt ((1 + dot2 p p) * (1 + dot2 q q)).

Lemma angle_cosine : forall p q, angle_between p q = acos (cosine p q).
Proof. intros. unfold angle_between, angle, cosine. rewrite !dot_direction. reflexivity. Qed.

Lemma norm_pos : forall p q, 0 < (1 + dot2 p p) * (1 + dot2 q q).
Proof. intros. apply Rmult_lt_0_compat; apply square_pos. Qed.

Lemma cosine_square : forall p q, cosine p q * cosine p q
  = (1 + dot2 p q) * (1 + dot2 p q) / ((1 + dot2 p p) * (1 + dot2 q q)).
Proof.
  intros. unfold cosine. assert (H := norm_pos p q). set (n := (1 + dot2 p p) * (1 + dot2 q q)) in *.
  assert (S : sqrt n * sqrt n = n) by (apply sqrt_sqrt; lra).
  assert (P : 0 < sqrt n) by (apply sqrt_lt_R0, H).
  rewrite <- S at 3. field. lra.
Qed.

Lemma sine_square : forall p q, 1 - cosine p q * cosine p q
  = (dot2 (minus2 p q) (minus2 p q) + (fst p * snd q - snd p * fst q) * (fst p * snd q - snd p * fst q))
    / ((1 + dot2 p p) * (1 + dot2 q q)).
Proof.
  intros. rewrite cosine_square, <- gram. assert (H := norm_pos p q).
  field. split; apply Rgt_not_eq, square_pos.
Qed.

Lemma dot2_nonneg : forall u, 0 <= dot2 u u.
Proof. intros [a b]. unfold dot2. simpl. nra. Qed.

Lemma cosine_bound : forall p q, -1 <= cosine p q <= 1.
Proof.
  intros. assert (0 <= 1 - cosine p q * cosine p q).
  { rewrite sine_square. apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat, norm_pos].
    assert (A := dot2_nonneg (minus2 p q)). assert (B := Rle_0_sqr (fst p * snd q - snd p * fst q)).
    unfold Rsqr in B. lra. }
  split; nra.
Qed.

Lemma length_square : forall p q, distance p q * distance p q = dot2 (minus2 p q) (minus2 p q).
Proof.
  intros p q. unfold distance, length2. rewrite sqrt_sqrt; [reflexivity|].
  apply (dot2_nonneg (minus2 p q)).
Qed.

(** A length in the plane is at most 1 + t times the angle, t the square of the larger radius. *)
Theorem stretch : forall p q t, dot2 p p <= t -> dot2 q q <= t ->
  distance p q <= (1 + t) * angle_between p q.
Proof.
  intros p q t Hp Hq. rewrite angle_cosine. set (a := acos (cosine p q)).
  assert (A0 := acos_bound (cosine p q)). fold a in A0.
  assert (Ht : 0 <= t) by (apply Rle_trans with (2 := Hp), dot2_nonneg).
  assert (L := dot2_nonneg (minus2 p q)). assert (D0 : 0 <= distance p q) by apply sqrt_pos.
  assert (S : distance p q / (1 + t) <= sin a).
  { unfold a. rewrite sin_acos by apply cosine_bound. unfold Rsqr.
    rewrite <- (sqrt_square (distance p q / (1 + t)))
      by (apply Rmult_le_pos; [exact D0 | left; apply Rinv_0_lt_compat; lra]).
    apply sqrt_le_1_alt. rewrite sine_square.
    replace (distance p q / (1 + t) * (distance p q / (1 + t)))
      with (distance p q * distance p q / ((1 + t) * (1 + t))) by (field; lra).
    rewrite length_square. set (c := (fst p * snd q - snd p * fst q)).
    assert (C := Rle_0_sqr c). unfold Rsqr in C.
    assert (N := norm_pos p q).
    assert (N2 : (1 + dot2 p p) * (1 + dot2 q q) <= (1 + t) * (1 + t)).
    { assert (P1 := square_pos p). assert (P2 := square_pos q). apply Rmult_le_compat; lra. }
    apply Rle_trans with (dot2 (minus2 p q) (minus2 p q) / ((1 + dot2 p p) * (1 + dot2 q q))).
    - apply Rmult_le_compat_l; [exact L | apply Rinv_le_contravar; assumption].
    - apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, N | lra]. }
  assert (Le : sin a <= a).
  { destruct (proj1 A0) as [H|H]; [left; apply sin_lt_x, H | rewrite <- H, sin_0; lra]. }
  apply Rmult_le_reg_r with (/ (1 + t)); [apply Rinv_0_lt_compat; lra|].
  replace ((1 + t) * a * / (1 + t)) with a by (field; lra). unfold Rdiv in S. lra.
Qed.

Lemma acute : forall p q, 0 <= 1 + dot2 p q -> angle_between p q <= PI / 2.
Proof.
  intros p q H. rewrite angle_cosine. destruct (Rle_dec (acos (cosine p q)) (PI / 2)) as [G|G]; [exact G|].
  apply Rnot_le_lt in G. assert (B := acos_bound (cosine p q)).
  assert (N : cos (acos (cosine p q)) < 0) by (apply cos_lt_0; lra).
  rewrite cos_acos in N by apply cosine_bound. unfold cosine in N.
  assert (0 <= (1 + dot2 p q) / sqrt ((1 + dot2 p p) * (1 + dot2 q q)));
    [apply Rmult_le_pos; [exact H | left; apply Rinv_0_lt_compat, sqrt_lt_R0, norm_pos] | lra].
Qed.

(** Along a straight line angles add up. *)
Theorem angles_add : forall a c s, 0 <= s <= 1 -> let b := along a c s in
  0 <= 1 + dot2 a b -> 0 <= 1 + dot2 b c ->
  angle_between a b + angle_between b c = angle_between a c.
Proof.
  intros a c s Hs b Hab Hbc.
  assert (P1 := acute a b Hab). assert (P2 := acute b c Hbc).
  assert (B1 := acos_bound (cosine a b)). assert (B2 := acos_bound (cosine b c)).
  rewrite !angle_cosine in *.
  rewrite <- (acos_cos (acos (cosine a b) + acos (cosine b c))) by lra. f_equal.
  rewrite cos_plus, !cos_acos, !sin_acos by apply cosine_bound. unfold Rsqr.
  set (A := 1 + dot2 a a). set (B := 1 + dot2 b b). set (C := 1 + dot2 c c). set (m := 1 + dot2 a c).
  assert (PA : 0 < A) by apply square_pos. assert (PB : 0 < B) by apply square_pos.
  assert (PC : 0 < C) by apply square_pos.
  assert (Eab : 1 + dot2 a b = (1 - s) * A + s * m)
    by (unfold A, m, b, along, dot2; destruct a, c; simpl; ring).
  assert (Ebc : 1 + dot2 b c = (1 - s) * m + s * C)
    by (unfold C, m, b, along, dot2; destruct a, c; simpl; ring).
  assert (Eb : B = (1 - s) * (1 - s) * A + 2 * s * (1 - s) * m + s * s * C)
    by (unfold A, B, C, m, b, along, dot2; destruct a, c; simpl; ring).
  assert (S0 : 0 <= A * C - m * m).
  { unfold A, C, m. rewrite gram. assert (X := dot2_nonneg (minus2 a c)).
    assert (Y := Rle_0_sqr (fst a * snd c - snd a * fst c)). unfold Rsqr in Y. lra. }
  assert (Sin : forall w p q, 0 <= w -> (1 + dot2 p p) * (1 + dot2 q q) - (1 + dot2 p q) * (1 + dot2 p q)
                 = w * w * (A * C - m * m) ->
                 sqrt (1 - cosine p q * cosine p q)
                 = w * sqrt (A * C - m * m) / sqrt ((1 + dot2 p p) * (1 + dot2 q q))).
  { intros w p q Hw E. assert (N := norm_pos p q).
    replace (1 - cosine p q * cosine p q) with (w * w * (A * C - m * m) / ((1 + dot2 p p) * (1 + dot2 q q))).
    - unfold Rdiv. rewrite sqrt_mult_alt by (apply Rmult_le_pos; [apply Rle_0_sqr | exact S0]).
      rewrite sqrt_mult_alt by apply Rle_0_sqr. rewrite (sqrt_square w Hw).
      rewrite sqrt_inv. reflexivity.
    - rewrite cosine_square, <- E. field. split; apply Rgt_not_eq, square_pos. }
  rewrite (Sin s a b), (Sin (1 - s) b c); try lra.
  - unfold cosine. fold A B C m.
    assert (Q1 : sqrt (A * B) = sqrt A * sqrt B) by (apply sqrt_mult; lra).
    assert (Q2 : sqrt (B * C) = sqrt B * sqrt C) by (apply sqrt_mult; lra).
    assert (Q3 : sqrt (A * C) = sqrt A * sqrt C) by (apply sqrt_mult; lra).
    rewrite Q1, Q2, Q3.
    assert (RA : 0 < sqrt A) by (apply sqrt_lt_R0, PA). assert (RB : 0 < sqrt B) by (apply sqrt_lt_R0, PB).
    assert (RC : 0 < sqrt C) by (apply sqrt_lt_R0, PC).
    assert (SB : sqrt B * sqrt B = B) by (apply sqrt_sqrt; lra).
    assert (SS : sqrt (A * C - m * m) * sqrt (A * C - m * m) = A * C - m * m) by (apply sqrt_sqrt, S0).
    apply Rmult_eq_reg_r with (sqrt A * (sqrt B * sqrt B) * sqrt C);
      [|apply Rgt_not_eq; repeat apply Rmult_lt_0_compat; assumption].
    replace (((1 + dot2 a b) / (sqrt A * sqrt B) * ((1 + dot2 b c) / (sqrt B * sqrt C)) -
      s * sqrt (A * C - m * m) / (sqrt A * sqrt B) * ((1 - s) * sqrt (A * C - m * m) / (sqrt B * sqrt C))) *
      (sqrt A * (sqrt B * sqrt B) * sqrt C))
      with ((1 + dot2 a b) * (1 + dot2 b c) - s * (1 - s) * (sqrt (A * C - m * m) * sqrt (A * C - m * m)))
      by (field; lra).
    replace (m / (sqrt A * sqrt C) * (sqrt A * (sqrt B * sqrt B) * sqrt C)) with (m * (sqrt B * sqrt B))
      by (field; lra).
    rewrite SS, SB, Eab, Ebc, Eb. ring.
  - fold B C. rewrite Ebc, Eb. ring.
  - fold A B. rewrite Eab, Eb. ring.
Qed.

(** ** Chains *)

(** A set of numbers t: those with 0 <= a t + b for all (a, b) of a list. *)
Definition within (s : list (R * R)) (t : R) : Prop := forall c, In c s -> 0 <= fst c * t + snd c.

(** What is not in such a set has a neighbourhood that is not. *)
Lemma away : forall s t, ~ within s t -> exists delta, 0 < delta /\
  forall u, Rabs (u - t) < delta -> ~ within s u.
Proof.
  intros s t H. apply not_all_ex_not in H. destruct H as [[a b] H].
  apply imply_to_and in H. destruct H as [Hin H]. simpl in H. apply Rnot_le_lt in H.
  assert (P : 0 < Rabs a + 1) by (generalize (Rabs_pos a); lra).
  exists (- (a * t + b) / (Rabs a + 1)). split.
  - apply Rmult_lt_0_compat; [lra | apply Rinv_0_lt_compat, P].
  - intros u Hu W. specialize (W (a, b) Hin). simpl in W.
    assert (K : Rabs (u - t) * (Rabs a + 1) < - (a * t + b)).
    { apply Rmult_lt_compat_r with (r := Rabs a + 1) in Hu; [|exact P].
      unfold Rdiv in Hu. rewrite Rmult_assoc, Rinv_l in Hu by lra. lra. }
    assert (M : a * (u - t) <= Rabs a * Rabs (u - t)).
    { rewrite <- Rabs_mult. apply RRle_abs. }
    assert (0 <= Rabs (u - t)) by apply Rabs_pos. nra.
Qed.

(** Finitely many of them that hold everything to the right of t hold t. *)
Lemma closed_union : forall l t b, t < b ->
  (forall u, t < u <= b -> exists s, In s l /\ within s u) -> exists s, In s l /\ within s t.
Proof.
  intros l t b Hb H.
  assert (G : (exists s, In s l /\ within s t) \/ exists delta, 0 < delta /\
    forall u, Rabs (u - t) < delta -> forall s, In s l -> ~ within s u).
  { clear H. induction l as [|s l [(s' & I & W)|(delta & D & IH)]].
    - right. exists 1. split; [lra | intros u _ s []].
    - left. exists s'. split; [right; exact I | exact W].
    - destruct (classic (within s t)) as [W|W]; [left; exists s; split; [left; reflexivity | exact W]|].
      destruct (away s t W) as (e & E & A). right. exists (Rmin delta e). split.
      + apply Rmin_pos; assumption.
      + intros u Hu s' [<-|I].
        * apply A. apply Rlt_le_trans with (1 := Hu), Rmin_r.
        * apply (IH u); [apply Rlt_le_trans with (1 := Hu), Rmin_l | exact I]. }
  destruct G as [G|(delta & D & G)]; [exact G|].
  set (u := Rmin b (t + delta / 2)).
  assert (Hu : t < u <= b).
  { unfold u. split; [apply Rmin_glb_lt; lra | apply Rmin_l]. }
  destruct (H u Hu) as (s & I & W). exfalso. apply (G u) with s; try assumption.
  rewrite Rabs_right by lra. assert (u <= t + delta / 2) by apply Rmin_r. lra.
Qed.

(** What holds between any two numbers of one set holds from end to end. *)
Theorem chain : forall (P : R -> R -> Prop) (n : nat) (l : list (list (R * R))) (a b : R),
  length l = n -> a <= b ->
  (forall t, a <= t <= b -> exists s, In s l /\ within s t) ->
  (forall s t u, In s l -> a <= t -> t <= u -> u <= b -> within s t -> within s u -> P t u) ->
  (forall r s t, a <= r -> r <= s -> s <= t -> t <= b -> P r s -> P s t -> P r t) ->
  P a b.
Proof.
  intros P. induction n as [|n IH]; intros l a b Hn Hab Cover Inside Trans.
  - destruct (Cover a ltac:(lra)) as (s & I & _). destruct l; [destruct I | discriminate].
  - destruct (Cover a ltac:(lra)) as (s & I & W).
    destruct (completeness (fun t => a <= t <= b /\ within s t)) as [m [Up Least]].
    { exists b. intros t [H _]. lra. }
    { exists a. split; [lra | exact W]. }
    assert (Ma : a <= m) by (apply Up; split; [lra | exact W]).
    assert (Mb : m <= b) by (apply Least; intros t [H _]; lra).
    assert (Wm : within s m).
    { apply NNPP. intro N. destruct (away s m N) as (delta & D & A).
      assert (m <= m - delta); [|lra]. apply Least. intros t [Ht Wt].
      assert (Tm : t <= m) by (apply Up; split; assumption).
      destruct (Rle_dec t (m - delta)) as [L|L]; [exact L|]. exfalso. apply (A t); [|exact Wt].
      rewrite Rabs_left1 by lra. lra. }
    assert (First : P a m) by (apply (Inside s); try assumption; lra).
    destruct (Req_dec m b) as [->|Ne]; [exact First|].
    apply in_split in I. destruct I as (l1 & l2 & ->).
    assert (Rest : forall t, m < t <= b -> exists s', In s' (l1 ++ l2) /\ within s' t).
    { intros t Ht. destruct (Cover t ltac:(lra)) as (s' & I & Wt).
      apply in_app_or in I. destruct I as [I|[<-|I]].
      - exists s'. split; [apply in_or_app; left; exact I | exact Wt].
      - exfalso. assert (t <= m); [apply Up; split; [lra | exact Wt] | lra].
      - exists s'. split; [apply in_or_app; right; exact I | exact Wt]. }
    assert (Sub : forall s', In s' (l1 ++ l2) -> In s' (l1 ++ s :: l2)).
    { intros s' H. apply in_app_or in H. apply in_or_app. destruct H; [left | right; right]; assumption. }
    assert (Second : P m b).
    { apply (IH (l1 ++ l2)).
      - rewrite app_length in *. simpl in Hn. lia.
      - lra.
      - intros t Ht. destruct (Req_dec t m) as [->|E].
        + apply closed_union with b; [lra | exact Rest].
        + apply Rest. lra.
      - intros s' t u H. intros. apply (Inside s'); try assumption; try lra. apply Sub, H.
      - intros r s' t H1 H2 H3 H4. apply Trans; lra. }
    apply (Trans a m b); try assumption; lra.
Qed.
