(** Finite sums of reals: [sigma n f] = f 0 + .. + f (n - 1). *)

From Coq Require Import Reals Lra Lia Arith.
Open Scope R_scope.

Fixpoint sigma (n : nat) (f : nat -> R) : R :=
  match n with
  | O => 0
  | S n => sigma n f + f n
  end.

Lemma sigma_ext : forall n f g, (forall i, (i < n)%nat -> f i = g i) -> sigma n f = sigma n g.
Proof.
  induction n as [|n IH]; intros f g H; simpl; [reflexivity|].
  rewrite (IH f g), H; auto with arith.
Qed.

Lemma sigma_le : forall n f g, (forall i, (i < n)%nat -> f i <= g i) -> sigma n f <= sigma n g.
Proof.
  induction n as [|n IH]; intros f g H; simpl; [lra|].
  assert (sigma n f <= sigma n g) by (apply IH; auto with arith).
  assert (f n <= g n) by auto with arith. lra.
Qed.

Lemma sigma_nonneg : forall n f, (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= sigma n f.
Proof.
  induction n as [|n IH]; intros f H; simpl; [lra|].
  assert (0 <= sigma n f) by (apply IH; auto with arith).
  assert (0 <= f n) by auto with arith. lra.
Qed.

Lemma sigma_plus : forall n f g, sigma n (fun i => f i + g i) = sigma n f + sigma n g.
Proof. induction n as [|n IH]; intros; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sigma_scale : forall n c f, sigma n (fun i => c * f i) = c * sigma n f.
Proof. induction n as [|n IH]; intros; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sigma_swap : forall n m f,
  sigma n (fun i => sigma m (fun j => f i j)) = sigma m (fun j => sigma n (fun i => f i j)).
Proof.
  induction n as [|n IH]; intros m f; simpl.
  - induction m as [|m IHm]; simpl; [lra|]. rewrite <- IHm. lra.
  - rewrite IH. rewrite <- sigma_plus. reflexivity.
Qed.

Lemma sigma_shift : forall n f, sigma (S n) f = f O + sigma n (fun i => f (S i)).
Proof.
  induction n as [|n IH]; intro f; [simpl; lra|].
  change (sigma (S (S n)) f) with (sigma (S n) f + f (S n)). rewrite IH. simpl. lra.
Qed.

(** A sum with one term that counts. *)
Lemma sigma_at : forall n a f, (a < n)%nat ->
  sigma n (fun i => if Nat.eqb a i then f i else 0) = f a.
Proof.
  intros n a f H. induction n as [|n IH]; [lia|]. simpl.
  destruct (Nat.eqb a n) eqn:E.
  - apply Nat.eqb_eq in E. subst.
    rewrite (sigma_ext n _ (fun i => 0 * f i)).
    + rewrite sigma_scale. lra.
    + intros i Hi. destruct (Nat.eqb n i) eqn:F; [apply Nat.eqb_eq in F; lia | lra].
  - apply Nat.eqb_neq in E. rewrite IH by lia. lra.
Qed.

(** A sum over 0 .. n m - 1 of products, row by row. *)
Lemma sigma_product : forall n m f g,
  sigma n (fun i => sigma m (fun j => f i * g j)) = sigma n f * sigma m g.
Proof.
  intros n m f g. rewrite (sigma_ext n _ (fun i => sigma m g * f i)).
  - rewrite sigma_scale. lra.
  - intros i _. rewrite sigma_scale. lra.
Qed.
