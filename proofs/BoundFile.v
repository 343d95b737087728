(** The bound's proof as it lies in a file: losses, pairs of records and their multipliers, checked in
    whole numbers.  Costs and multipliers are over one common denominator, [unit]. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Distance Nats Table Check Sums.
Import ListNotations.
Open Scope Z_scope.

(** ** The function *)

(** An upper bound on exp(epsilon d), over 2^128; 0 where there is none. *)
Definition growth_high (t : table) (x x' : Z) : Z :=
  let p := prepare (metric t) (fst (row_of t (Z.to_nat x))) in
  let q := prepare (metric t) (fst (row_of t (Z.to_nat x'))) in
  let e := exp_neg_low (nats_high (metric t) (epsilon_num t) (epsilon_den t) p q) in
  if 0 <? e then one * one / e + 1 else 0.

Fixpoint update (i : nat) (f : list Z -> list Z) (rows : list (list Z)) {struct rows} : list (list Z) :=
  match rows, i with
  | [], _ => []
  | r :: rows, O => f r :: rows
  | r :: rows, S i => r :: update i f rows
  end.

(** A pair (x, x') with its multipliers l adds l to the costs of x and takes g l from those of x'. *)
Definition proof_step : Type := (Z * Z) * list Z.

Definition step_ok (t : table) (m : nat) (s : proof_step) : bool :=
  let '((x, x'), l) := s in
  (0 <=? x) && (x <? Z.of_nat (records t)) && (0 <=? x') && (x' <? Z.of_nat (records t))
  && Nat.eqb (length l) m && forallb (Z.leb 0) l && (0 <? growth_high t x x').

Definition apply_step (t : table) (s : proof_step) (rows : list (list Z)) : list (list Z) :=
  let '((x, x'), l) := s in
  let g := growth_high t x x' in
  update (Z.to_nat x) (fun r => zip Z.add r (map (Z.mul one) l))
    (update (Z.to_nat x') (fun r => zip Z.sub r (map (Z.mul g) l)) rows).

Definition least (row : list Z) : Z :=
  match row with [] => 0 | a :: row => fold_right Z.min a row end.

Definition bound_ok (t : table) (m : nat) (unit : Z) (costs : list (list Z))
    (steps : list proof_step) (num den : Z) : bool :=
  (0 <? epsilon_num t) && (0 <? epsilon_den t) && (0 <? denominator (metric t))
  && (0 <? unit) && (0 <? den) && (0 <? Z.of_nat m)
  && Nat.eqb (length costs) (records t) && forallb (fun r => Nat.eqb (length r) m) costs
  && forallb (step_ok t m) steps
  && (num * unit * one
      <=? den * sum (map least (fold_right (apply_step t) (map (map (Z.mul one)) costs) steps))).

(** ** The proof *)

Section Value.
Open Scope R_scope.

(** Sums over the entries of a row, and over rows, weighted by probabilities z. *)
Fixpoint row_value (row : list Z) (z : nat -> R) : R :=
  match row with
  | [] => 0
  | a :: row => IZR a * z O + row_value row (fun y => z (S y))
  end.

Fixpoint value (rows : list (list Z)) (z : nat -> nat -> R) : R :=
  match rows with
  | [] => 0
  | r :: rows => row_value r (z O) + value rows (fun x => z (S x))
  end.

Lemma row_value_scale : forall k row z, row_value (map (Z.mul k) row) z = IZR k * row_value row z.
Proof. induction row as [|a row IH]; intro z; simpl; [ring|]. rewrite IH, mult_IZR. ring. Qed.

Lemma row_value_add : forall a b z, length a = length b ->
  row_value (zip Z.add a b) z = row_value a z + row_value b z.
Proof.
  induction a as [|u a IH]; intros [|v b] z H; simpl in *; try discriminate; [ring|].
  rewrite IH by lia. rewrite plus_IZR. ring.
Qed.

Lemma row_value_sub : forall a b z, length a = length b ->
  row_value (zip Z.sub a b) z = row_value a z - row_value b z.
Proof.
  induction a as [|u a IH]; intros [|v b] z H; simpl in *; try discriminate; [ring|].
  rewrite IH by lia. rewrite minus_IZR. ring.
Qed.

Lemma value_scale : forall k rows z, value (map (map (Z.mul k)) rows) z = IZR k * value rows z.
Proof.
  induction rows as [|r rows IH]; intro z; simpl; [ring|]. rewrite IH, row_value_scale. ring.
Qed.

Lemma value_update : forall f rows i z, (i < length rows)%nat ->
  value (update i f rows) z
  = value rows z + (row_value (f (nth i rows [])) (z i) - row_value (nth i rows []) (z i)).
Proof.
  intro f. induction rows as [|r rows IH]; intros i z H; simpl in *; [lia|].
  destruct i as [|i]; simpl; [ring|]. rewrite IH by lia. ring.
Qed.

Lemma row_value_mono : forall l u v g, (forall w, In w l -> (0 <= w)%Z) ->
  (forall y, u y <= g * v y) -> row_value l u <= g * row_value l v.
Proof.
  induction l as [|a l IH]; intros u v g H Huv; simpl; [lra|].
  assert (row_value l (fun y => u (S y)) <= g * row_value l (fun y => v (S y))).
  { apply IH; [intros w Hw; apply H; right; exact Hw | intro y; apply Huv]. }
  assert (0 <= IZR a) by (apply IZR_le, H; left; reflexivity).
  specialize (Huv O). nra.
Qed.

Lemma row_value_least : forall row k z, (forall y, 0 <= z y) -> (forall a, In a row -> (k <= a)%Z) ->
  IZR k * sigma (length row) z <= row_value row z.
Proof.
  induction row as [|a row IH]; intros k z Hz H; [simpl; lra|].
  simpl length. rewrite sigma_shift. simpl.
  assert (IZR k * sigma (length row) (fun y => z (S y)) <= row_value row (fun y => z (S y))).
  { apply IH; [intro; apply Hz | intros b Hb; apply H; right; exact Hb]. }
  assert (IZR k <= IZR a) by (apply IZR_le, H; left; reflexivity).
  specialize (Hz O). nra.
Qed.

End Value.

Lemma update_length : forall f rows i, length (update i f rows) = length rows.
Proof. induction rows as [|r rows IH]; intros [|i]; simpl; auto. Qed.

Lemma update_all : forall (P : list Z -> Prop) f rows i,
  (forall r, P r -> P (f r)) -> Forall P rows -> Forall P (update i f rows).
Proof.
  intros P f. induction rows as [|r rows IH]; intros i Hf H; simpl; [constructor|].
  inversion H; subst. destruct i; constructor; auto.
Qed.

Lemma least_le : forall row a, In a row -> least row <= a.
Proof.
  intros [|b row] a H; [destruct H|]. simpl.
  assert (G : fold_right Z.min b row <= b /\ forall c, In c row -> fold_right Z.min b row <= c).
  { clear H. induction row as [|c row [IH1 IH2]]; simpl; [split; [lia | intros c []]|].
    split; [lia|]. intros e [->|He]; [lia|]. specialize (IH2 e He). lia. }
  destruct H as [->|H]; [lia | apply G, H].
Qed.

(** The tables that the bound speaks about: probabilities that are epsilon-mDP on these records. *)
Definition allowed (t : table) (m : nat) (z : nat -> nat -> R) : Prop :=
  (forall x y, (0 <= z x y)%R) /\
  (forall x, (x < records t)%nat -> sigma m (z x) = 1%R) /\
  (forall x x' y, (x < records t)%nat -> (x' < records t)%nat ->
     (z x y <= exp (epsilon t * d t x x') * z x' y)%R).

(** Their loss, with the costs p_x c_xy as they lie in the file. *)
Definition loss (unit : Z) (costs : list (list Z)) (z : nat -> nat -> R) : R :=
  (value costs z / IZR unit)%R.

Section Proof.
Variables (t : table) (m : nat) (z : nat -> nat -> R).
Hypothesis num_pos : 0 < epsilon_num t.
Hypothesis den_pos : 0 < epsilon_den t.
Hypothesis denominator_pos : 0 < denominator (metric t).
Hypothesis all : allowed t m z.

Lemma growth_high_ge : forall x x', 0 < growth_high t x x' ->
  (exp (epsilon t * d t (Z.to_nat x) (Z.to_nat x')) <= val (growth_high t x x'))%R.
Proof.
  intros x x' H. unfold growth_high in *.
  assert (L := nats_high_ge (metric t) (epsilon_num t) (epsilon_den t)
    (fst (row_of t (Z.to_nat x))) (fst (row_of t (Z.to_nat x'))) ltac:(lia) den_pos denominator_pos).
  fold (epsilon t) in L. fold (d t (Z.to_nat x) (Z.to_nat x')) in L.
  set (h := nats_high _ _ _ _ _) in *. set (a := (epsilon t * d t _ _)%R) in *.
  destruct (exp_neg_low_le h) as [_ E]. set (e := exp_neg_low h) in *.
  destruct (0 <? e) eqn:P; [|lia]. apply Z.ltb_lt in P.
  apply Rle_trans with (exp (val h)).
  { destruct L as [L | ->]; [left; apply exp_increasing, L | right; reflexivity]. }
  assert (V : (0 < val e)%R).
  { unfold val. apply Rmult_lt_0_compat; [apply IZR_lt, P | apply Rinv_0_lt_compat, one_real]. }
  apply Rle_trans with (/ val e)%R.
  - rewrite exp_Ropp in E. rewrite <- (Rinv_inv (exp (val h))). apply Rinv_le_contravar; assumption.
  - apply Rle_trans with (val (one * one) / IZR e)%R.
    + right. unfold val. rewrite mult_IZR. field.
      split; [apply Rgt_not_eq, one_real | apply Rgt_not_eq, IZR_lt, P].
    + apply div_one_up, P.
Qed.

Definition shaped (rows : list (list Z)) : Prop :=
  length rows = records t /\ Forall (fun r => length r = m) rows.

Lemma shaped_nth : forall rows x, shaped rows -> (x < records t)%nat -> length (nth x rows []) = m.
Proof.
  intros rows x [L F] H. rewrite Forall_forall in F. apply F, nth_In. lia.
Qed.

(** A step keeps the shape and does not raise the value. *)
Lemma step_lowers : forall s rows, step_ok t m s = true -> shaped rows ->
  shaped (apply_step t s rows) /\ (value (apply_step t s rows) z <= value rows z)%R.
Proof.
  intros [[x x'] l] rows H S. unfold step_ok in H. rewrite !andb_true_iff in H.
  destruct H as [[[[[[H1 H2] H3] H4] H5] H6] H7].
  apply Z.leb_le in H1, H3. apply Z.ltb_lt in H2, H4, H7. apply Nat.eqb_eq in H5.
  rewrite forallb_forall in H6.
  assert (Hx : (Z.to_nat x < records t)%nat) by lia.
  assert (Hx' : (Z.to_nat x' < records t)%nat) by lia.
  assert (N : forall w, In w l -> 0 <= w) by (intros w Hw; apply Z.leb_le, H6, Hw).
  assert (G := growth_high_ge x x' H7). unfold apply_step.
  set (g := growth_high t x x') in *.
  set (inner := update (Z.to_nat x') _ rows).
  assert (Si : shaped inner).
  { destruct S as [S1 S2]. split; [unfold inner; rewrite update_length; exact S1|].
    apply update_all; [|exact S2]. intros r Hr. rewrite zip_length; [exact Hr|].
    rewrite map_length. lia. }
  split.
  - destruct Si as [S1 S2]. split; [rewrite update_length; exact S1|].
    apply update_all; [|exact S2]. intros r Hr. rewrite zip_length; [exact Hr|].
    rewrite map_length. lia.
  - rewrite value_update by (destruct Si; lia).
    rewrite row_value_add by (rewrite map_length, (shaped_nth inner) by assumption; lia).
    unfold inner at 1. rewrite value_update by (destruct S; lia).
    rewrite row_value_sub by (rewrite map_length, (shaped_nth rows) by assumption; lia).
    rewrite !row_value_scale.
    destruct all as (Z0 & _ & Zm).
    assert (M : (row_value l (z (Z.to_nat x)) <= val g * row_value l (z (Z.to_nat x')))%R).
    { apply row_value_mono; [exact N|]. intro y.
      apply Rle_trans with (1 := Zm _ _ y Hx Hx').
      apply Rmult_le_compat_r; [apply Z0 | exact G]. }
    rewrite (IZR_val g). assert (P := one_real).
    assert (IZR one * row_value l (z (Z.to_nat x))
            <= IZR one * (val g * row_value l (z (Z.to_nat x'))))%R
      by (apply Rmult_le_compat_l; lra).
    lra.
Qed.

Lemma steps_lower : forall steps rows, forallb (step_ok t m) steps = true -> shaped rows ->
  shaped (fold_right (apply_step t) rows steps) /\
  (value (fold_right (apply_step t) rows steps) z <= value rows z)%R.
Proof.
  induction steps as [|s steps IH]; intros rows H S; simpl in *; [split; [exact S | lra]|].
  apply andb_prop in H. destruct H as [H1 H2]. destruct (IH rows H2 S) as [S1 V1].
  destruct (step_lowers s _ H1 S1) as [S2 V2]. split; [exact S2 | lra].
Qed.

Lemma least_total : forall rows k, (forall x, (x < length rows)%nat -> sigma m (z (k + x)) = 1%R) ->
  Forall (fun r => length r = m) rows ->
  (IZR (sum (map least rows)) <= value rows (fun x => z (k + x)%nat))%R.
Proof.
  destruct all as (Z0 & _). induction rows as [|r rows IH]; intros k Hz F; simpl; [lra|].
  inversion F; subst. fold (sum (map least rows)). rewrite plus_IZR.
  assert (IZR (sum (map least rows)) <= value rows (fun x => z (k + S x)%nat))%R.
  { assert (E : forall rows u v, (forall x, u x = v x) -> value rows u = value rows v).
    { clear. induction rows as [|r rows IH]; intros u v H; simpl; [reflexivity|].
      rewrite (H O). f_equal. apply IH. intro x. apply H. }
    rewrite (E rows _ (fun x => z (S k + x)%nat)) by (intro x; f_equal; lia).
    apply IH; [|assumption]. intros x Hx. replace (S k + x)%nat with (k + S x)%nat by lia.
    apply Hz. simpl. lia. }
  assert (R := row_value_least r (least r) (z (k + 0)%nat) (fun y => Z0 _ y) (least_le r)).
  rewrite (Hz O) in R by (simpl; lia). lra.
Qed.

End Proof.

(** The bound that the file states is at most the loss of every table that is epsilon-mDP. *)
Theorem file_bound : forall t m unit costs steps num den,
  bound_ok t m unit costs steps num den = true ->
  forall z, allowed t m z -> (IZR num / IZR den <= loss unit costs z)%R.
Proof.
  intros t m unit costs steps num den H z A. unfold bound_ok in H. rewrite !andb_true_iff in H.
  destruct H as [[[[[[[[[H1 H2] H3] H4] H5] H6] H7] H8] H9] H10].
  apply Z.ltb_lt in H1, H2, H3, H4, H5, H6. apply Nat.eqb_eq in H7. apply Z.leb_le in H10.
  rewrite forallb_forall in H8.
  assert (S : shaped t m (map (map (Z.mul one)) costs)).
  { split; [rewrite map_length; exact H7|]. apply Forall_forall. intros r Hr.
    apply in_map_iff in Hr. destruct Hr as (c & <- & Hc). rewrite map_length.
    apply Nat.eqb_eq, H8, Hc. }
  destruct (steps_lower t m z H1 H2 H3 A steps _ H9 S) as [[L F] V].
  set (final := fold_right _ _ steps) in *.
  assert (T := least_total t m z A final 0).
  rewrite value_scale in V.
  assert (W : (IZR (sum (map least final)) <= value final z)%R).
  { apply T; [|exact F]. intros x Hx. apply A. rewrite <- L. exact Hx. }
  apply IZR_le in H10. rewrite !mult_IZR in H10.
  assert (P1 := one_real).
  assert (Pu : (0 < IZR unit)%R) by (apply IZR_lt, H4).
  assert (Pd : (0 < IZR den)%R) by (apply IZR_lt, H5).
  unfold loss.
  apply Rmult_le_reg_r with (IZR den * IZR unit * IZR one)%R;
    [apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat|]; assumption|].
  replace (IZR num / IZR den * (IZR den * IZR unit * IZR one))%R
    with (IZR num * IZR unit * IZR one)%R by (field; lra).
  replace (value costs z / IZR unit * (IZR den * IZR unit * IZR one))%R
    with (IZR den * (IZR one * value costs z))%R by (field; lra).
  apply Rle_trans with (1 := H10). apply Rmult_le_compat_l; lra.
Qed.

(** What a limit costs.  Terms v_k of a table with shares of guesses that sum to 1 are at least <b_k, z>: what their
    prices pay together is at least [loss unit costs z] for costs below sum_k price_k b_k.  Where v_k <= limit_k +
    grows_k level for every k, with taken = sum_k price_k limit_k and grown = sum_k price_k grows_k: *)
Theorem limited_bound : forall t m unit costs steps num den,
  bound_ok t m unit costs steps num den = true ->
  forall z, allowed t m z -> forall paid taken grown level : R,
  (loss unit costs z <= paid)%R -> (paid <= taken + grown * level)%R -> (0 < grown)%R ->
  ((IZR num / IZR den - taken) / grown <= level)%R.
Proof.
  intros t m unit costs steps num den H z A paid taken grown level P L G.
  assert (B := file_bound t m unit costs steps num den H z A).
  apply Rmult_le_reg_r with grown; [exact G|].
  replace ((IZR num / IZR den - taken) / grown * grown)%R with (IZR num / IZR den - taken)%R
    by (unfold Rdiv; rewrite Rmult_assoc, Rinv_l by (apply Rgt_not_eq, G); ring).
  lra.
Qed.

(** What guesses gain at shares (s, g) that sum to 1 is at most the largest gain. *)
Lemma shares_below_largest : forall (guesses : list (R * R)) (most : R),
  (forall s g, In (s, g) guesses -> 0 <= s /\ g <= most)%R -> fold_right Rplus 0%R (map fst guesses) = 1%R ->
  (fold_right Rplus 0 (map (fun p => fst p * snd p) guesses) <= most)%R.
Proof.
  intros guesses most S T.
  assert (G : (fold_right Rplus 0 (map (fun p => fst p * snd p) guesses)
               <= most * fold_right Rplus 0 (map fst guesses))%R).
  { clear T. induction guesses as [|[s g] guesses IH]; simpl; [lra|].
    assert (I := IH (fun s g H => S s g (or_intror H))).
    destruct (S s g (or_introl eq_refl)) as [P M]. simpl in *. nra. }
  rewrite T in G. lra.
Qed.
