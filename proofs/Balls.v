(** PAnDA with balls.  A centre c is drawn (eps_1-mDP) and released; a record inside the ball around c
    reports from its own row, which fades at the edge into the row of everybody outside.  What is seen
    is the pair (c, y). *)

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

(** The law of a centre: scores f that differ by e^(a d) at most, over sums N that differ by e^(k d) at
    most, make a law that tells a + k. *)
Theorem level_law : forall (X Y : Type) (d : X -> X -> R) (f : X -> Y -> R) (N : X -> R) (a k : R),
  (forall x, 0 < N x) -> (forall x y, 0 <= f x y) -> mdp a d f ->
  (forall x x', N x' <= exp (k * d x x') * N x) ->
  mdp (a + k) d (fun x y => f x y / N x).
Proof.
  intros X Y d f N a k Npos Fpos F L x x' y. unfold Rdiv.
  rewrite Rmult_plus_distr_r, exp_plus.
  assert (I : / N x <= exp (k * d x x') * / N x').
  { apply Rmult_le_reg_l with (N x); [apply Npos|].
    apply Rmult_le_reg_r with (N x'); [apply Npos|].
    assert (P := Npos x). assert (P' := Npos x').
    replace (N x * / N x * N x') with (N x') by (field; lra).
    replace (N x * (exp (k * d x x') * / N x') * N x') with (exp (k * d x x') * N x) by (field; lra).
    apply L. }
  replace (exp (a * d x x') * exp (k * d x x') * (f x' y * / N x'))
    with (exp (a * d x x') * f x' y * (exp (k * d x x') * / N x')) by ring.
  apply Rmult_le_compat; auto. left. apply Rinv_0_lt_compat, Npos.
Qed.

Section Balls.
Variables (X : Type) (d : X -> X -> R) (A : X -> nat -> R) (T : X -> nat -> R) (eps1 eps2 : R).
Hypothesis A_nonneg : forall x c, 0 <= A x c.
Hypothesis A_private : mdp eps1 d A.
Hypothesis T_nonneg : forall x y, 0 <= T x y.
Hypothesis T_private : mdp eps2 d T.

Lemma joint : forall x x' c (u v k : R), 0 <= u -> 0 <= v -> u <= exp k * v ->
  A x c * u <= exp (eps1 * d x x' + k) * (A x' c * v).
Proof.
  intros x x' c u v k Hu Hv H. rewrite exp_plus.
  replace (exp (eps1 * d x x') * exp k * (A x' c * v))
    with (exp (eps1 * d x x') * A x' c * (exp k * v)) by ring.
  apply Rmult_le_compat; auto.
Qed.

(** *** Rows that fade *)

(** [u c] is the row of everybody outside ball c, [w c x] its share in the report of x, 1 outside.
    A row of the table is at most [M c] times the common one. *)
Variables (w : nat -> X -> R) (u : nat -> nat -> R) (M : nat -> R).
Hypothesis u_nonneg : forall c y, 0 <= u c y.
Hypothesis w_share : forall c x, 0 <= w c x <= 1.
Hypothesis below : forall c x y, w c x < 1 -> T x y <= M c * u c y.

(** What the share keeps: as it falls with the depth, which a distance bounds. *)
Variable edge : R.
Hypothesis falls : forall c x x', w c x <= exp ((eps2 + edge) * d x x') * w c x'.
Hypothesis rises : forall c x x', w c x < 1 ->
  w c x + (1 - w c x) * M c
  <= exp ((eps2 + edge) * d x x') * w c x' + exp (edge * d x x') * ((1 - w c x') * M c).

Definition faded (x : X) (c y : nat) : R := w c x * u c y + (1 - w c x) * T x y.

(** Whatever ball it is, rows that fade into its common row tell eps_2 + edge at most. *)
Theorem fading : forall c x x' y,
  faded x c y <= exp ((eps2 + edge) * d x x') * faded x' c y.
Proof.
  intros c x x' y. unfold faded.
  assert (U := u_nonneg c y). assert (Z := T_nonneg x y). assert (Z' := T_nonneg x' y).
  destruct (w_share c x) as [W0 W1]. destruct (w_share c x') as [V0 V1].
  assert (F := falls c x x'). assert (P := T_private x x' y).
  assert (E : exp ((eps2 + edge) * d x x') = exp (edge * d x x') * exp (eps2 * d x x')).
  { rewrite <- exp_plus. f_equal. ring. }
  assert (Q := exp_pos (edge * d x x')).
  set (D := exp ((eps2 + edge) * d x x')) in *. set (G := exp (edge * d x x')) in *.
  assert (Step : w c x * u c y + (1 - w c x) * T x y
                 <= D * w c x' * u c y + G * (1 - w c x') * T x y).
  { destruct (Rlt_le_dec (w c x) 1) as [Inside|Out].
    - assert (R := rises c x x' Inside). fold D in R. fold G in R.
      assert (B := below c x y Inside).
      destruct (Rle_lt_dec (1 - w c x) (G * (1 - w c x'))) as [K|K]; nra.
    - assert (One : w c x = 1) by lra. rewrite One in *.
      assert (0 <= G * (1 - w c x') * T x y).
      { apply Rmult_le_pos; [apply Rmult_le_pos|]; lra. }
      assert (1 * u c y <= D * w c x' * u c y) by (apply Rmult_le_compat_r; assumption). lra. }
  apply Rle_trans with (1 := Step). rewrite E.
  assert (G * (1 - w c x') * T x y
          <= G * (1 - w c x') * (exp (eps2 * d x x') * T x' y)).
  { apply Rmult_le_compat_l; [apply Rmult_le_pos; lra | exact P]. }
  rewrite E in *. nra.
Qed.

(** Centre and report together: eps_1 + eps_2 + edge, and no delta. *)
Theorem faded_balls : forall x x' c y,
  A x c * faded x c y <= exp ((eps1 + (eps2 + edge)) * d x x') * (A x' c * faded x' c y).
Proof.
  intros x x' c y. rewrite Rmult_plus_distr_r.
  assert (F : forall x, 0 <= faded x c y).
  { intro a. unfold faded. assert (U := u_nonneg c y). assert (Z := T_nonneg a y).
    destruct (w_share c a). apply Rplus_le_le_0_compat; apply Rmult_le_pos; lra. }
  apply joint; [apply F | apply F | apply fading].
Qed.

(** A place takes the row of a record of the ball, and its share is 1 where none is near: so rows of two
    places that both report from own rows differ by what their records do, e^k more than by the distance
    of the places.  Then centre and report of places tell k nats more, as wherever places are snapped. *)
Theorem snapped_balls : forall (S : X -> nat -> nat -> R) (k : R), 0 <= k ->
  (forall x c y, 0 <= S x c y) ->
  (forall x c y, w c x < 1 -> S x c y <= M c * u c y) ->
  (forall x x' c y, w c x < 1 -> w c x' < 1 -> S x c y <= exp (eps2 * d x x' + k) * S x' c y) ->
  forall x x' c y,
  A x c * (w c x * u c y + (1 - w c x) * S x c y)
  <= exp (eps1 * d x x' + ((eps2 + edge) * d x x' + k)) * (A x' c * (w c x' * u c y + (1 - w c x') * S x' c y)).
Proof.
  intros S k K S_nonneg S_below S_near x x' c y.
  assert (U := u_nonneg c y). assert (Z := S_nonneg x c y). assert (Z' := S_nonneg x' c y).
  destruct (w_share c x) as [W0 W1]. destruct (w_share c x') as [V0 V1].
  apply joint; [apply Rplus_le_le_0_compat; apply Rmult_le_pos; lra
               |apply Rplus_le_le_0_compat; apply Rmult_le_pos; lra |].
  assert (Fl := falls c x x').
  assert (E : exp ((eps2 + edge) * d x x' + k) = exp (edge * d x x') * exp (eps2 * d x x' + k)).
  { rewrite <- exp_plus. f_equal. ring. }
  assert (One : 1 <= exp k) by (rewrite <- exp_0; apply exp_le, K).
  assert (Dk : exp ((eps2 + edge) * d x x' + k) = exp ((eps2 + edge) * d x x') * exp k) by apply exp_plus.
  assert (Dp := exp_pos ((eps2 + edge) * d x x')). assert (Q := exp_pos (edge * d x x')).
  set (D := exp ((eps2 + edge) * d x x')) in *. set (G := exp (edge * d x x')) in *.
  assert (First : D * w c x' * u c y <= exp ((eps2 + edge) * d x x' + k) * (w c x' * u c y)).
  { rewrite Dk, Rmult_assoc, (Rmult_assoc D). apply Rmult_le_compat_l; [lra|].
    assert (0 <= w c x' * u c y) by (apply Rmult_le_pos; lra). nra. }
  assert (Rest : 0 <= exp ((eps2 + edge) * d x x' + k) * ((1 - w c x') * S x' c y)).
  { apply Rmult_le_pos; [left; apply exp_pos | apply Rmult_le_pos; lra]. }
  destruct (Rlt_le_dec (w c x) 1) as [Inside|Out].
  - assert (Ri := rises c x x' Inside). fold D in Ri. fold G in Ri.
    assert (B := S_below x c y Inside).
    assert (Step : w c x * u c y + (1 - w c x) * S x c y
                   <= D * w c x' * u c y + G * (1 - w c x') * S x c y).
    { destruct (Rle_lt_dec (1 - w c x) (G * (1 - w c x'))) as [N|N]; nra. }
    assert (Second : G * (1 - w c x') * S x c y
                     <= exp ((eps2 + edge) * d x x' + k) * ((1 - w c x') * S x' c y)).
    { destruct (Rlt_le_dec (w c x') 1) as [Inside'|Out'].
      - rewrite E. assert (N := S_near x x' c y Inside Inside').
        replace (G * exp (eps2 * d x x' + k) * ((1 - w c x') * S x' c y))
          with (G * (1 - w c x') * (exp (eps2 * d x x' + k) * S x' c y)) by ring.
        apply Rmult_le_compat_l; [apply Rmult_le_pos; lra | exact N].
      - assert (V : w c x' = 1) by lra. rewrite V in *. lra. }
    rewrite (Rmult_plus_distr_l (exp ((eps2 + edge) * d x x' + k))). lra.
  - assert (W : w c x = 1) by lra. rewrite W in *.
    assert (1 * u c y <= D * w c x' * u c y) by (apply Rmult_le_compat_r; assumption).
    rewrite (Rmult_plus_distr_l (exp ((eps2 + edge) * d x x' + k))). lra.
Qed.

End Balls.

(** ** What a guarantee with a delta says *)

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
