(** Factored tables: z_xy = w_y exp(-epsilon d(x, y)), records and outputs being the same.  Such a table is
    private by the triangle inequality alone, and a bound on what any private table loses needs one
    number for each record. *)

From Coq Require Import Reals Lra Lia Arith.
From Panda Require Import Sums Processing.
Open Scope R_scope.

Section Star.
Variables (n : nat) (d : nat -> nat -> R) (epsilon : R).
Hypothesis epsilon_nonneg : 0 <= epsilon.
Hypothesis d_self : forall x, d x x = 0.
Hypothesis d_symmetric : forall x x', d x x' = d x' x.
Hypothesis d_triangle : forall x x' x'', d x x'' <= d x x' + d x' x''.

Definition decay (x y : nat) : R := exp (- (epsilon * d x y)).

(** Whatever the factors w >= 0: epsilon-mDP, without the factor 2 of the exponential mechanism. *)
Theorem star_private : forall w : nat -> R, (forall y, 0 <= w y) ->
  mdp epsilon d (fun x y => w y * decay x y).
Proof.
  intros w W x x' y. unfold decay.
  replace (exp (epsilon * d x x') * (w y * exp (- (epsilon * d x' y))))
    with (w y * exp (epsilon * d x x' + - (epsilon * d x' y))) by (rewrite exp_plus; ring).
  apply Rmult_le_compat_l; [apply W|]. apply exp_le.
  assert (T := d_triangle x' x y). rewrite (d_symmetric x' x) in T. nra.
Qed.

(** Numbers mu with mu_x <= cost x y for all y other than x, and sum_x mu_x E_xy <= sum_x cost x y E_xy for
    every y: no epsilon-mDP table of probabilities loses less than their sum. *)
Theorem star_bound : forall (cost : nat -> nat -> R) (mu : nat -> R) (z : nat -> nat -> R),
  (forall x y, (x < n)%nat -> (y < n)%nat -> x <> y -> mu x <= cost x y) ->
  (forall y, (y < n)%nat -> sigma n (fun x => mu x * decay x y) <= sigma n (fun x => cost x y * decay x y)) ->
  mdp epsilon d z -> (forall x y, 0 <= z x y) -> (forall x, (x < n)%nat -> sigma n (z x) = 1) ->
  sigma n mu <= sigma n (fun x => sigma n (fun y => cost x y * z x y)).
Proof.
  intros cost mu z Far Near Z0 Zp Z1.
  assert (Column : forall y, (y < n)%nat -> 0 <= sigma n (fun x => (cost x y - mu x) * z x y)).
  { intros y Hy.
    apply Rle_trans with (z y y * sigma n (fun x => (cost x y - mu x) * decay x y)).
    - apply Rmult_le_pos; [apply Zp|].
      rewrite (sigma_ext n _ (fun x => cost x y * decay x y + (-1) * (mu x * decay x y)))
        by (intros; ring). rewrite sigma_plus, sigma_scale. specialize (Near y Hy). lra.
    - rewrite <- sigma_scale. apply sigma_le. intros x Hx.
      destruct (Nat.eq_dec x y) as [->|Ne].
      + unfold decay. rewrite d_self, Rmult_0_r, Ropp_0, exp_0. lra.
      + assert (C := Far x y Hx Hy Ne).
        assert (G : decay x y * z y y <= z x y).
        { unfold decay. apply Rmult_le_reg_l with (exp (epsilon * d x y)); [apply exp_pos|].
          rewrite <- Rmult_assoc, <- exp_plus, Rplus_opp_r, exp_0, Rmult_1_l.
          rewrite d_symmetric. apply Z0. }
        nra. }
  apply Rle_trans with (sigma n (fun x => sigma n (fun y => mu x * z x y))).
  - right. apply sigma_ext. intros x Hx. rewrite sigma_scale, Z1 by exact Hx. ring.
  - rewrite sigma_swap, (sigma_swap n n (fun x y => cost x y * z x y)). apply sigma_le. intros y Hy.
    specialize (Column y Hy).
    rewrite (sigma_ext n _ (fun x => cost x y * z x y + (-1) * (mu x * z x y))) in Column
      by (intros; ring). rewrite sigma_plus, sigma_scale in Column. lra.
Qed.

(** Where equality holds for all y and w solves sum_y E_xy w_y = 1, the table of w attains the bound. *)
Theorem star_optimal : forall (cost : nat -> nat -> R) (mu w : nat -> R),
  (forall y, (y < n)%nat -> sigma n (fun x => mu x * decay x y) = sigma n (fun x => cost x y * decay x y)) ->
  (forall x, (x < n)%nat -> sigma n (fun y => w y * decay x y) = 1) ->
  sigma n mu = sigma n (fun x => sigma n (fun y => cost x y * (w y * decay x y))).
Proof.
  intros cost mu w Equal Row.
  transitivity (sigma n (fun x => sigma n (fun y => mu x * (w y * decay x y)))).
  - apply sigma_ext. intros x Hx. rewrite sigma_scale, Row by exact Hx. ring.
  - rewrite sigma_swap, (sigma_swap n n (fun x y => cost x y * (w y * decay x y))).
    apply sigma_ext. intros y Hy.
    rewrite (sigma_ext n (fun x => mu x * (w y * decay x y)) (fun x => w y * (mu x * decay x y)))
      by (intros; ring).
    rewrite (sigma_ext n (fun x => cost x y * (w y * decay x y)) (fun x => w y * (cost x y * decay x y)))
      by (intros; ring).
    rewrite !sigma_scale, Equal by exact Hy. reflexivity.
Qed.

End Star.
