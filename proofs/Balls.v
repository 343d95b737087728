(** PAnDA with balls.  A centre c is drawn (eps_1-mDP) and released; a record inside the ball around c
    reports from its own row, one outside from another row.  What is seen is the pair (c, y). *)

From Coq Require Import Reals Lra Lia List Bool.
From Panda Require Import Sums Processing.
Open Scope R_scope.

Section Events.
Variables (X : Type) (n m : nat).
Variables (A : X -> nat -> R) (row : X -> nat -> nat -> R).
Hypothesis A_nonneg : forall x c, 0 <= A x c.
Hypothesis row_nonneg : forall x c y, 0 <= row x c y.
Hypothesis row_sum : forall x c, sigma m (row x c) = 1.

(** The probability that (c, y) lies in the event E. *)
Definition probability (x : X) (E : nat -> nat -> bool) : R :=
  sigma n (fun c => sigma m (fun y => if E c y then A x c * row x c y else 0)).

(** If the ratio of the probabilities of (c, y) is at most e^k except for centres that x draws with
    probability at most delta, then P_x(E) <= e^k P_x'(E) + delta for every event E. *)
Theorem outside_an_event : forall x x' k delta (bad : nat -> bool),
  sigma n (fun c => if bad c then A x c else 0) <= delta ->
  (forall c y, bad c = false -> A x c * row x c y <= exp k * (A x' c * row x' c y)) ->
  forall E, probability x E <= exp k * probability x' E + delta.
Proof.
  intros x x' k delta bad Hd H E. unfold probability.
  apply Rle_trans with (sigma n (fun c =>
    exp k * sigma m (fun y => if E c y then A x' c * row x' c y else 0)
    + (if bad c then A x c else 0))).
  - apply sigma_le. intros c _.
    assert (P' : 0 <= sigma m (fun y => if E c y then A x' c * row x' c y else 0)).
    { apply sigma_nonneg. intros y _. destruct (E c y); [apply Rmult_le_pos; auto | lra]. }
    assert (0 <= exp k * sigma m (fun y => if E c y then A x' c * row x' c y else 0)).
    { apply Rmult_le_pos; [left; apply exp_pos | exact P']. }
    destruct (bad c) eqn:B.
    + assert (sigma m (fun y => if E c y then A x c * row x c y else 0) <= A x c).
      { apply Rle_trans with (A x c * sigma m (row x c)); [|rewrite row_sum; lra].
        rewrite <- sigma_scale. apply sigma_le. intros y _.
        assert (0 <= A x c * row x c y) by (apply Rmult_le_pos; auto). destruct (E c y); lra. }
      lra.
    + rewrite Rplus_0_r, <- sigma_scale. apply sigma_le. intros y _.
      destruct (E c y); [apply H, B | lra].
  - rewrite sigma_plus, sigma_scale. lra.
Qed.
End Events.

Section Balls.
Variables (X : Type) (d : X -> X -> R) (centre : nat -> X -> R) (n m : nat).
Variables (A : X -> nat -> R) (T : X -> nat -> R) (eps1 eps2 r : R).

(** [centre c x] is the distance of x from centre c, d that of two records. *)
Hypothesis triangle : forall c x x', centre c x' <= centre c x + d x x'.
Hypothesis d_nonneg : forall x x', 0 <= d x x'.
Hypothesis eps2_pos : 0 < eps2.
Hypothesis A_nonneg : forall x c, 0 <= A x c.
Hypothesis A_private : mdp eps1 d A.
Hypothesis T_nonneg : forall x y, 0 <= T x y.
Hypothesis T_sum : forall x, sigma m (T x) = 1.
Hypothesis T_private : mdp eps2 d T.

Lemma joint : forall x x' c (u v k : R), 0 <= u -> 0 <= v -> u <= exp k * v ->
  A x c * u <= exp (eps1 * d x x' + k) * (A x' c * v).
Proof.
  intros x x' c u v k Hu Hv H. rewrite exp_plus.
  replace (exp (eps1 * d x x') * exp k * (A x' c * v))
    with (exp (eps1 * d x x') * A x' c * (exp k * v)) by ring.
  apply Rmult_le_compat; auto.
Qed.

(** *** A floored row outside *)

Variables (q : nat -> R) (S : R).
Hypothesis q_nonneg : forall y, 0 <= q y.
Hypothesis q_sum : sigma m q = 1.

(** No two entries of a column, those of the public row q included, differ by more than e^S. *)
Hypothesis S_nonneg : 0 <= S.
Hypothesis span : forall x x' y, T x y <= exp S * T x' y.
Hypothesis span_q : forall x y, T x y <= exp S * q y /\ q y <= exp S * T x y.

Definition floored (x : X) (c y : nat) : R := if Rle_dec (centre c x) r then T x y else q y.

Definition beyond (x : X) (c : nat) : bool :=
  if Rlt_dec (r - S / eps2) (centre c x) then true else false.

(** Balls without the factor 2: if x draws a centre farther than r - S / eps_2 with probability at
    most delta, what is seen is (eps_1 + eps_2, delta)-private. *)
Theorem floored_balls : forall x x' delta,
  sigma n (fun c => if beyond x c then A x c else 0) <= delta ->
  forall E, probability X n m A floored x E
            <= exp ((eps1 + eps2) * d x x') * probability X n m A floored x' E + delta.
Proof.
  intros x x' delta Hd. rewrite Rmult_plus_distr_r.
  assert (F0 : forall x c y, 0 <= floored x c y)
    by (intros; unfold floored; destruct (Rle_dec _ _); auto).
  apply outside_an_event with (bad := beyond x); auto.
  - intros. unfold floored. destruct (Rle_dec _ _); auto.
  - intros c y B. apply joint; auto. unfold beyond in B.
    destruct (Rlt_dec (r - S / eps2) (centre c x)) as [|N]; [discriminate|].
    assert (Tr := triangle c x x'). assert (D := d_nonneg x x').
    assert (Q : eps2 * (S / eps2) = S) by (field; lra).
    assert (Q0 : 0 <= S / eps2)
      by (apply Rmult_le_pos; [exact S_nonneg | left; apply Rinv_0_lt_compat, eps2_pos]).
    destruct (Rle_lt_dec S (eps2 * d x x')) as [Far|Near].
    + assert (G : forall u v, 0 <= v -> u <= exp S * v -> u <= exp (eps2 * d x x') * v).
      { intros u v Hv H. apply Rle_trans with (1 := H).
        apply Rmult_le_compat_r; [exact Hv | apply exp_le, Far]. }
      assert (One : 1 <= exp S) by (rewrite <- exp_0; apply exp_le, S_nonneg).
      unfold floored. destruct (Rle_dec (centre c x) r); destruct (Rle_dec (centre c x') r);
        apply G; auto.
      * apply span_q.
      * apply span_q.
      * assert (Hq := q_nonneg y). nra.
    + assert (d x x' < S / eps2) by nra.
      unfold floored. destruct (Rle_dec (centre c x) r); [|lra].
      destruct (Rle_dec (centre c x') r); [|lra]. apply T_private.
Qed.

(** *** The nearest row inside *)

(** A record inside is its own surrogate; one outside takes a nearest record inside. *)
Variable surrogate : nat -> X -> X.
Hypothesis own : forall c x, centre c x <= r -> surrogate c x = x.
Hypothesis nearest : forall c x x', centre c x <= r -> d x' (surrogate c x') <= d x' x.
Hypothesis d_triangle : forall x x' x'', d x x'' <= d x x' + d x' x''.
Hypothesis d_symmetric : forall x x', d x x' = d x' x.

Definition outside (x : X) (c : nat) : bool := if Rlt_dec r (centre c x) then true else false.

(** Then what is seen is (eps_1 + 2 eps_2, delta)-private, delta the chance to be outside. *)
Theorem nearest_balls : forall x x' delta,
  sigma n (fun c => if outside x c then A x c else 0) <= delta ->
  forall E, probability X n m A (fun x c => T (surrogate c x)) x E
            <= exp ((eps1 + 2 * eps2) * d x x')
               * probability X n m A (fun x c => T (surrogate c x)) x' E + delta.
Proof.
  intros x x' delta Hd. rewrite Rmult_plus_distr_r.
  apply outside_an_event with (bad := outside x); auto.
  intros c y B. apply joint; auto. unfold outside in B.
  destruct (Rlt_dec r (centre c x)) as [|N]; [discriminate|]. apply Rnot_lt_le in N.
  rewrite (own c x N). apply Rle_trans with (1 := T_private x (surrogate c x') y).
  apply Rmult_le_compat_r; [auto|]. apply exp_le.
  assert (H1 := nearest c x x' N). assert (H2 := d_triangle x x' (surrogate c x')).
  rewrite (d_symmetric x' x) in H1. nra.
Qed.

End Balls.

(** ** One row for everybody outside, accounted pair by pair *)

(** Whether two probabilities differ by more than a factor e^k, either way. *)
Definition far (k a b : R) : bool :=
  if Rle_dec a (exp k * b) then if Rle_dec b (exp k * a) then false else true else true.

Lemma near : forall k a b, far k a b = false <-> a <= exp k * b /\ b <= exp k * a.
Proof.
  intros k a b. unfold far. destruct (Rle_dec a (exp k * b)); destruct (Rle_dec b (exp k * a));
    split; intro H; try discriminate; try tauto; auto.
Qed.

(** A guarantee says: outcomes whose probabilities under x and x' differ by more than e^k, either way,
    have probability at most delta under x.  It implies P_x(E) <= e^k P_x'(E) + delta. *)
Theorem guarantee_for_events : forall (n m : nat) (p p' : nat -> nat -> R) (k delta : R),
  (forall c y, 0 <= p c y) -> (forall c y, 0 <= p' c y) ->
  sigma n (fun c => sigma m (fun y => if far k (p c y) (p' c y) then p c y else 0)) <= delta ->
  forall E : nat -> nat -> bool,
  sigma n (fun c => sigma m (fun y => if E c y then p c y else 0))
  <= exp k * sigma n (fun c => sigma m (fun y => if E c y then p' c y else 0)) + delta.
Proof.
  intros n m p p' k delta P P' H E.
  apply Rle_trans with (exp k * sigma n (fun c => sigma m (fun y => if E c y then p' c y else 0))
    + sigma n (fun c => sigma m (fun y => if far k (p c y) (p' c y) then p c y else 0))); [|lra].
  rewrite <- sigma_scale, <- sigma_plus. apply sigma_le. intros c _.
  rewrite <- sigma_scale, <- sigma_plus. apply sigma_le. intros y _.
  assert (0 <= p c y) by auto.
  assert (0 <= exp k * p' c y) by (apply Rmult_le_pos; [left; apply exp_pos | auto]).
  destruct (far k (p c y) (p' c y)) eqn:F; [destruct (E c y); lra|].
  apply near in F. destruct (E c y); lra.
Qed.

Section CommonRow.
Variables (X : Type) (d : X -> X -> R) (n m : nat) (inside : nat -> X -> bool).
Variables (A : X -> nat -> R) (T : X -> nat -> R) (u : nat -> nat -> R) (eps1 eps2 : R).
Hypothesis d_nonneg : forall x x', 0 <= d x x'.
Hypothesis d_symmetric : forall x x', d x x' = d x' x.
Hypothesis eps2_nonneg : 0 <= eps2.
Hypothesis A_nonneg : forall x c, 0 <= A x c.
Hypothesis A_private : mdp eps1 d A.
Hypothesis T_nonneg : forall x y, 0 <= T x y.
Hypothesis T_private : mdp eps2 d T.
Hypothesis u_nonneg : forall c y, 0 <= u c y.

(** The probability of (c, y): ball c is drawn, and x reports from its own row inside, from the
    ball's common row u c outside. *)
Definition seen (x : X) (c y : nat) : R := A x c * if inside c x then T x y else u c y.

Lemma near_joint : forall x x' c k a b, 0 <= a -> 0 <= b -> far k a b = false ->
  far (eps1 * d x x' + k) (A x c * a) (A x' c * b) = false.
Proof.
  intros x x' c k a b Ha Hb H. apply near in H. destruct H as [H1 H2]. apply near.
  rewrite exp_plus. split.
  - replace (exp (eps1 * d x x') * exp k * (A x' c * b))
      with (exp (eps1 * d x x') * A x' c * (exp k * b)) by ring.
    apply Rmult_le_compat; auto.
  - replace (exp (eps1 * d x x') * exp k * (A x c * a))
      with (exp (eps1 * d x x') * A x c * (exp k * a)) by ring.
    apply Rmult_le_compat; auto. rewrite d_symmetric. apply A_private.
Qed.

(** Only balls that hold one of the two records can fail, and only for reports in which that record's
    row and the common row differ by more than e^(eps_2 d): the sum that the library computes. *)
Theorem common_row_balls : forall x x',
  sigma n (fun c => sigma m (fun y =>
    if far ((eps1 + eps2) * d x x') (seen x c y) (seen x' c y) then seen x c y else 0))
  <= sigma n (fun c => if inside c x && negb (inside c x') then
       A x c * sigma m (fun y => if far (eps2 * d x x') (T x y) (u c y) then T x y else 0) else 0)
   + sigma n (fun c => if inside c x' && negb (inside c x) then
       A x c * sigma m (fun y => if far (eps2 * d x x') (u c y) (T x' y) then u c y else 0) else 0).
Proof.
  intros x x'. rewrite <- sigma_plus. apply sigma_le. intros c _. rewrite Rmult_plus_distr_r.
  assert (Zero : forall f : nat -> R, (forall y, f y = 0) -> sigma m f <= 0 + 0).
  { intros f H. rewrite (sigma_ext m f (fun y => 0 * f y)); [rewrite sigma_scale; lra|].
    intros y _. rewrite H. lra. }
  assert (Some_ : forall a b : nat -> R, (forall y, 0 <= a y) -> (forall y, 0 <= b y) ->
    sigma m (fun y => if far (eps1 * d x x' + eps2 * d x x') (A x c * a y) (A x' c * b y)
                      then A x c * a y else 0)
    <= A x c * sigma m (fun y => if far (eps2 * d x x') (a y) (b y) then a y else 0)).
  { intros a b Ha Hb. rewrite <- sigma_scale. apply sigma_le. intros y _.
    assert (0 <= A x c * a y) by (apply Rmult_le_pos; auto).
    destruct (far (eps2 * d x x') (a y) (b y)) eqn:F.
    - destruct (far _ (A x c * a y) _); lra.
    - rewrite near_joint by auto. lra. }
  unfold seen. destruct (inside c x); destruct (inside c x'); cbn [andb negb].
  - apply Zero. intro y. rewrite near_joint; auto. apply near. split; [apply T_private|].
    rewrite d_symmetric. apply T_private.
  - rewrite Rplus_0_r. apply Some_; auto.
  - rewrite Rplus_0_l. apply Some_; auto.
  - apply Zero. intro y. rewrite near_joint; auto. apply near.
    assert (1 <= exp (eps2 * d x x')) by (rewrite <- exp_0; apply exp_le, Rmult_le_pos; auto).
    assert (0 <= u c y) by auto. split; nra.
Qed.

End CommonRow.
