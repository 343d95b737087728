(** The draw: 62 random bits u, compared with the cumulative sums of a row.  Over all 2^62 equally
    likely values of u, output y comes up exactly W x y times; and where a generator has to reject
    inputs (a uniform number below an n that is no power of two), the outcomes keep their shares. *)

From Coq Require Import ZArith Lia List Bool.
From Panda Require Import Table Check.
Import ListNotations.
Open Scope Z_scope.

(** The first output whose share of the row reaches beyond u. *)
Fixpoint draw (row : list Z) (u : Z) : nat :=
  match row with
  | [] => 0
  | w :: row => if u <? w then 0 else S (draw row (u - w))
  end.

(** How the library writes it: the number of cumulative sums that u has reached. *)
Fixpoint cumulative (start : Z) (row : list Z) : list Z :=
  match row with
  | [] => []
  | w :: row => (start + w) :: cumulative (start + w) row
  end.

Definition search (row : list Z) (u : Z) : nat :=
  length (filter (fun c => c <=? u) (cumulative 0 row)).

(** In how many of the integers 0, 1, .., n - 1 something holds. *)
Fixpoint count (f : Z -> bool) (n : nat) : Z :=
  match n with
  | O => 0
  | S n => count f n + (if f (Z.of_nat n) then 1 else 0)
  end.

Definition nonneg (row : list Z) : Prop := forall w, In w row -> 0 <= w.

Lemma sum_cons : forall w row, sum (w :: row) = w + sum row.
Proof. reflexivity. Qed.

Lemma sum_nonneg : forall row, nonneg row -> 0 <= sum row.
Proof.
  induction row as [|w row IH]; intro H; simpl; [lia|].
  assert (0 <= w) by (apply H; left; reflexivity).
  assert (0 <= sum row) by (apply IH; intros v Hv; apply H; right; exact Hv). lia.
Qed.

Lemma nonneg_tail : forall w row, nonneg (w :: row) -> 0 <= w /\ nonneg row.
Proof. intros w row H. split; [apply H; left; auto | intros v Hv; apply H; right; auto]. Qed.

(** Output y is drawn exactly when w_0 + .. + w_(y-1) <= u < w_0 + .. + w_y. *)
Theorem draw_interval : forall row u y, nonneg row -> 0 <= u -> (y < length row)%nat ->
  (draw row u = y <-> sum (firstn y row) <= u < sum (firstn (S y) row)).
Proof.
  induction row as [|w row IH]; intros u y N Hu Hy; simpl length in Hy; [lia|].
  apply nonneg_tail in N. destruct N as [Hw N].
  cbn [draw]. destruct (u <? w) eqn:E.
  - apply Z.ltb_lt in E. destruct y as [|y]; simpl firstn; simpl sum.
    + split; [intros _; lia | reflexivity].
    + split; [discriminate|]. intros [H _]. exfalso.
      assert (0 <= sum (firstn y row)); [|lia].
      apply sum_nonneg. intros v Hv. apply N.
      rewrite <- (firstn_skipn y row). apply in_or_app. left. exact Hv.
  - apply Z.ltb_ge in E. destruct y as [|y].
    + simpl. split; [discriminate | lia].
    + specialize (IH (u - w) y N ltac:(lia) ltac:(lia)).
      change (firstn (S (S y)) (w :: row)) with (w :: firstn (S y) row).
      change (firstn (S y) (w :: row)) with (w :: firstn y row).
      rewrite !sum_cons. split.
      * intro H. injection H as H. apply IH in H. lia.
      * intro H. f_equal. apply IH. lia.
Qed.

Lemma cumulative_beyond : forall row start u, nonneg row -> u < start ->
  filter (fun c => c <=? u) (cumulative start row) = [].
Proof.
  induction row as [|w row IH]; intros start u N H; simpl; [reflexivity|].
  apply nonneg_tail in N. destruct N as [Hw N].
  destruct (start + w <=? u) eqn:E; [apply Z.leb_le in E; lia | apply IH; [exact N | lia]].
Qed.

(** The library's search is that draw. *)
Theorem search_is_draw : forall row u, nonneg row -> 0 <= u -> search row u = draw row u.
Proof.
  intros row u N Hu. unfold search.
  assert (G : forall row start, nonneg row -> start <= u ->
            length (filter (fun c => c <=? u) (cumulative start row)) = draw row (u - start)).
  { clear row N. induction row as [|w row IH]; intros start N Hs; simpl; [reflexivity|].
    apply nonneg_tail in N. destruct N as [Hw N].
    destruct (start + w <=? u) eqn:E.
    - apply Z.leb_le in E. destruct (u - start <? w) eqn:F; [apply Z.ltb_lt in F; lia|].
      simpl. f_equal. rewrite IH by (auto; lia). f_equal. lia.
    - apply Z.leb_gt in E. destruct (u - start <? w) eqn:F; [|apply Z.ltb_ge in F; lia].
      rewrite cumulative_beyond by (auto; lia). reflexivity. }
  rewrite (G row 0 N Hu). f_equal. lia.
Qed.

Lemma count_ext : forall f g n,
  (forall u, 0 <= u < Z.of_nat n -> f u = g u) -> count f n = count g n.
Proof.
  induction n as [|n IH]; intro H; simpl; [reflexivity|].
  rewrite IH by (intros; apply H; lia). rewrite H by lia. reflexivity.
Qed.

Lemma count_interval : forall a b n, 0 <= a -> a <= b -> b <= Z.of_nat n ->
  count (fun u => (a <=? u) && (u <? b)) n = b - a.
Proof.
  intros a b n Ha Hab Hn.
  assert (G : forall k, count (fun u => (a <=? u) && (u <? b)) k
                        = Z.max 0 (Z.min b (Z.of_nat k) - a)).
  { induction k as [|k IH]; simpl count; [lia|]. rewrite IH.
    destruct (a <=? Z.of_nat k) eqn:E1; destruct (Z.of_nat k <? b) eqn:E2; simpl andb; cbv iota;
      rewrite ?Z.leb_le, ?Z.leb_gt, ?Z.ltb_lt, ?Z.ltb_ge in *; lia. }
  rewrite G. lia.
Qed.

Lemma sum_firstn_step : forall row y, (y < length row)%nat ->
  sum (firstn (S y) row) = sum (firstn y row) + nth y row 0.
Proof.
  induction row as [|w row IH]; intros y H; simpl length in H; [lia|].
  destruct y as [|y]; [simpl; lia|].
  change (firstn (S (S y)) (w :: row)) with (w :: firstn (S y) row).
  change (firstn (S y) (w :: row)) with (w :: firstn y row).
  rewrite !sum_cons. simpl nth. rewrite IH by lia. lia.
Qed.

Lemma sum_firstn_le : forall row y, nonneg row -> 0 <= sum (firstn y row) <= sum row.
Proof.
  induction row as [|w row IH]; intros y N; [destruct y; simpl; lia|].
  apply nonneg_tail in N. destruct N as [Hw N]. assert (S := sum_nonneg row N).
  destruct y as [|y]; simpl; [lia|]. specialize (IH y N). lia.
Qed.

(** Of the integers below the row's sum, exactly w_y lead to output y. *)
Theorem draw_count : forall row y, nonneg row -> (y < length row)%nat ->
  count (fun u => Nat.eqb (draw row u) y) (Z.to_nat (sum row)) = nth y row 0.
Proof.
  intros row y N Hy. assert (S0 := sum_nonneg row N).
  rewrite (count_ext _ (fun u => (sum (firstn y row) <=? u) && (u <? sum (firstn (S y) row)))).
  - assert (Hs := sum_firstn_step row y Hy).
    assert (H1 := sum_firstn_le row y N). assert (H2 := sum_firstn_le row (S y) N).
    assert (0 <= nth y row 0) by (apply N, nth_In, Hy).
    rewrite count_interval; rewrite ?Z2Nat.id; lia.
  - intros u Hu. assert (I := draw_interval row u y N ltac:(lia) Hy).
    destruct (Nat.eqb (draw row u) y) eqn:E.
    + apply Nat.eqb_eq, I in E. symmetry. apply andb_true_iff.
      rewrite Z.leb_le, Z.ltb_lt. exact E.
    + apply Nat.eqb_neq in E. symmetry. apply andb_false_iff.
      rewrite Z.leb_gt, Z.ltb_ge. lia.
Qed.

(** For a table that was checked: of the 2^62 inputs, exactly W x y lead from x to y. *)
Theorem sampler_exact : forall t x y, check t = true -> (x < records t)%nat ->
  (y < length (floors t))%nat ->
  count (fun u => Nat.eqb (search (weights t x) u) y) (Z.to_nat total) = W t x y.
Proof.
  intros t x y C Hx Hy. destruct (check_stochastic t C x Hx) as [S N].
  rewrite (count_ext _ (fun u => Nat.eqb (draw (weights t x) u) y)).
  - rewrite <- S. apply draw_count; [exact N|]. unfold weights. rewrite decode_length. exact Hy.
  - intros u Hu. rewrite search_is_draw; [reflexivity | exact N | lia].
Qed.

(** ** Rejection *)

(** Inputs are read until one is accepted; f of that one is the outcome. *)
Fixpoint until (accept : Z -> bool) (f : Z -> nat) (inputs : list Z) : option nat :=
  match inputs with
  | [] => None
  | u :: inputs => if accept u then Some (f u) else until accept f inputs
  end.

(** All sequences of r inputs, each below n. *)
Definition below (n : nat) : list Z := map Z.of_nat (seq 0 n).

Fixpoint sequences (n r : nat) : list (list Z) :=
  match r with
  | O => [[]]
  | S r => flat_map (fun u => map (cons u) (sequences n r)) (below n)
  end.

Definition number {A} (f : A -> bool) (l : list A) : Z := Z.of_nat (length (filter f l)).

Lemma number_app : forall A (f : A -> bool) l m, number f (l ++ m) = number f l + number f m.
Proof. intros. unfold number. rewrite filter_app, app_length. lia. Qed.

Lemma number_map : forall A B (g : A -> B) f l, number f (map g l) = number (fun x => f (g x)) l.
Proof.
  intros. unfold number. induction l as [|a l IH]; simpl; [reflexivity|].
  destruct (f (g a)); simpl length; lia.
Qed.

Definition outcome (accept : Z -> bool) (f : Z -> nat) (y : nat) (inputs : list Z) : bool :=
  match until accept f inputs with Some z => Nat.eqb z y | None => false end.

Lemma number_true : forall A (l : list A), number (fun _ => true) l = Z.of_nat (length l).
Proof. intros. unfold number. f_equal. induction l; simpl; auto. Qed.

Lemma number_false : forall A (l : list A), number (fun _ => false) l = 0.
Proof. intros. unfold number. induction l; simpl; auto. Qed.

Lemma number_one : forall A (f : A -> bool) a, number f [a] = if f a then 1 else 0.
Proof. intros. unfold number. simpl. destruct (f a); reflexivity. Qed.

Lemma ways_step : forall accept f y n r,
  number (outcome accept f y) (sequences n (S r))
  = number (fun u => accept u && Nat.eqb (f u) y) (below n) * Z.of_nat (length (sequences n r))
    + number (fun u => negb (accept u)) (below n) * number (outcome accept f y) (sequences n r).
Proof.
  intros accept f y n r. cbn [sequences].
  induction (below n) as [|u l IH]; [reflexivity|].
  cbn [flat_map]. rewrite number_app, IH, number_map.
  change (u :: l) with ([u] ++ l). rewrite !number_app, !number_one.
  unfold outcome at 1. cbn [until].
  destruct (accept u) eqn:E; cbn [andb negb].
  - destruct (Nat.eqb (f u) y); [rewrite number_true | rewrite number_false]; ring.
  - fold (outcome accept f y). ring.
Qed.

(** After any number of inputs, the sequences that lead to y are as many as the accepted inputs that
    lead to y, times a number that is the same for every y: rejecting changes no share. *)
Theorem rejection_exact : forall accept f n r, exists common, forall y,
  number (outcome accept f y) (sequences n r)
  = number (fun u => accept u && Nat.eqb (f u) y) (below n) * common.
Proof.
  intros accept f n r. induction r as [|r [c IH]].
  - exists 0. intro y. rewrite Z.mul_0_r. reflexivity.
  - exists (Z.of_nat (length (sequences n r)) + number (fun u => negb (accept u)) (below n) * c).
    intro y. rewrite ways_step, IH. ring.
Qed.
