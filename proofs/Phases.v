(** Two phases in whole numbers: a user draws a ball, which is seen, and then reports; a record of the
    ball from its own row, any other from the ball's common row.  What is seen is the pair, and its law
    is known: [joint], over 2^124.  The checker sums, for every pair of records, the mass of what tells
    them apart by more than epsilon d.  Which records lie in which ball is an input: whoever reads the
    file computes it from the radius, and so does the device that draws. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Distance Nats Table Check Balls.
Import ListNotations.
Open Scope Z_scope.

(** ** The function *)

(** A ball: whether the record is in it, the weight with which the record draws it, and the row of
    everybody outside. *)
Definition ball : Type := bool * Z * list Z.

(** The law of (ball, report) for one record whose own row is [row]. *)
Definition joint (balls : list ball) (row : list Z) : list Z :=
  flat_map (fun b : ball => let '(inside, a, u) := b in
    map (Z.mul a) (if inside then row else u)) balls.

(** The mass of the outcomes that are not within the ratio e either way. *)
Fixpoint beyond (e : Z) (p q : list Z) : Z :=
  match p, q with
  | a :: p, b :: q => (if ratio_ok e a b then 0 else a) + beyond e p q
  | a :: p, [] => a + beyond e p []
  | [], _ => 0
  end.

(** A record of two phases: its point with what was computed of it, and the law of what it shows. *)
Definition shown : Type := list Z * list Z.

Definition phase_pair_ok (t : table) (num den : Z) (a b : shown) : bool :=
  let l := nats_low (metric t) (epsilon_num t) (epsilon_den t) (fst a) (fst b) in
  let e := exp_low l in
  (0 <=? l) && (one <=? e)
  && (den * beyond e (snd a) (snd b) <=? num * (total * total))
  && (den * beyond e (snd b) (snd a) <=? num * (total * total)).

Fixpoint phases_pairs (t : table) (num den : Z) (l : list shown) : bool :=
  match l with
  | [] => true
  | a :: l => forallb (phase_pair_ok t num den a) l && phases_pairs t num den l
  end.

(** [t] holds the points and rows of the records and the epsilon of both phases together, [law] the
    balls of every record; at most num / den of what is seen may exceed it. *)
Definition law_ok (r : list ball) (row : list Z) : bool :=
  forallb (fun b : ball => let '(_, a, u) := b in
    (0 <=? a) && forallb (Z.leb 0) u && (sum u =? total)) r
  && (sum (map (fun b : ball => snd (fst b)) r) =? total)
  && forallb (Z.leb 0) row && (sum row =? total).

Fixpoint laws_of (t : table) (rs : list record) (law : list (list ball)) : list shown :=
  match rs, law with
  | r :: rs, b :: law =>
      (prepare (metric t) (fst r), joint b (decode (floors t) 0 (snd r))) :: laws_of t rs law
  | _, _ => []
  end.

Fixpoint all_laws_ok (t : table) (rs : list record) (law : list (list ball)) : bool :=
  match rs, law with
  | r :: rs, b :: law => law_ok b (decode (floors t) 0 (snd r)) && all_laws_ok t rs law
  | [], [] => true
  | _, _ => false
  end.

Definition balls_ok (t : table) (law : list (list ball)) (num den : Z) : bool :=
  (0 <=? epsilon_num t) && (0 <? epsilon_den t) && (0 <? denominator (metric t))
  && (0 <=? num) && (0 <? den)
  && all_laws_ok t (rows t) law
  && phases_pairs t num den (laws_of t (rows t) law).

(** ** The proof *)

(** The true mass of what differs by more than a factor e^k, either way. *)
Fixpoint mass (k : R) (p q : list Z) : R :=
  match p, q with
  | a :: p, b :: q => ((if far k (IZR a) (IZR b) then IZR a else 0) + mass k p q)%R
  | _, _ => 0%R
  end.

Definition nonneg (l : list Z) : Prop := forall a, In a l -> 0 <= a.

Lemma nonneg_tail : forall a l, nonneg (a :: l) -> 0 <= a /\ nonneg l.
Proof. intros a l H. split; [apply H; left; reflexivity | intros b Hb; apply H; right; exact Hb]. Qed.

Lemma beyond_nonneg : forall e p q, nonneg p -> 0 <= beyond e p q.
Proof.
  induction p as [|a p IH]; intros q H; [destruct q; simpl; lia|].
  destruct (nonneg_tail a p H) as [Ha Hp].
  destruct q as [|b q]; simpl; [specialize (IH [] Hp) | specialize (IH q Hp); destruct (ratio_ok e a b)]; lia.
Qed.

(** What the checker sums is at least the true mass. *)
Lemma mass_le : forall l k, 0 <= l -> (val l <= k)%R -> one <= exp_low l ->
  forall p q, nonneg p -> nonneg q -> (mass k p q <= IZR (beyond (exp_low l) p q))%R.
Proof.
  intros l k Hl Hk He. induction p as [|a p IH]; intros q Hp Hq; [destruct q; simpl; lra|].
  destruct (nonneg_tail a p Hp) as [Ha Hp'].
  destruct q as [|b q].
  - simpl mass. apply IZR_le, beyond_nonneg, Hp.
  - destruct (nonneg_tail b q Hq) as [Hb Hq']. specialize (IH q Hp' Hq').
    cbn [mass beyond]. rewrite plus_IZR.
    assert (Ra : (0 <= IZR a)%R) by (apply IZR_le, Ha).
    destruct (ratio_ok (exp_low l) a b) eqn:E.
    + destruct (ratio_ok_both _ a b He Ha Hb E) as [E1 E2].
      replace (far k (IZR a) (IZR b)) with false; [simpl; lra|].
      symmetry. apply near. split.
      * apply (ratio_real _ l a b k Hb Hl eq_refl Hk E1).
      * apply (ratio_real _ l b a k Ha Hl eq_refl Hk E2).
    + destruct (far k (IZR a) (IZR b)); simpl; lra.
Qed.

Lemma joint_nonneg : forall r row, law_ok r row = true -> nonneg (joint r row).
Proof.
  intros r row H. unfold law_ok in H. rewrite !andb_true_iff in H. destruct H as [[[H1 _] H2] _].
  rewrite forallb_forall in H1, H2. intros a Ha. unfold joint in Ha. apply in_flat_map in Ha.
  destruct Ha as ([[inside w] u] & Hb & Ha). specialize (H1 _ Hb). simpl in H1.
  rewrite !andb_true_iff in H1. destruct H1 as [[W U] _]. apply Z.leb_le in W.
  rewrite forallb_forall in U. apply in_map_iff in Ha. destruct Ha as (c & <- & Hc).
  assert (0 <= c) by (destruct inside; apply Z.leb_le; auto). nia.
Qed.

Lemma sum_scale : forall a l, sum (map (Z.mul a) l) = a * sum l.
Proof. induction l as [|b l IH]; simpl; [lia|]. fold (sum (map (Z.mul a) l)). fold (sum l). lia. Qed.

Lemma sum_app : forall a b, sum (a ++ b) = sum a + sum b.
Proof. induction a as [|x a IH]; intro b; simpl; [lia|]. fold (sum (a ++ b)). fold (sum a). rewrite IH. lia. Qed.

(** The law of what is seen is one: it sums to 2^124. *)
Lemma joint_sum : forall r row, law_ok r row = true -> sum (joint r row) = total * total.
Proof.
  intros r row H. unfold law_ok in H. rewrite !andb_true_iff in H. destruct H as [[[H1 H2] _] H3].
  apply Z.eqb_eq in H2, H3. rewrite <- H2 at 1. clear H2.
  induction r as [|[[inside w] u] r IH]; [reflexivity|].
  simpl in H1. rewrite !andb_true_iff in H1. destruct H1 as [[_ U] H1]. apply Z.eqb_eq in U.
  specialize (IH H1). unfold joint in *. cbn [flat_map map fst snd]. rewrite sum_app, IH, sum_scale.
  change (sum (w :: map (fun b : ball => snd (fst b)) r))
    with (w + sum (map (fun b : ball => snd (fst b)) r)).
  destruct inside; [rewrite H3 | rewrite U]; lia.
Qed.

Lemma laws_nth : forall t rs law x, all_laws_ok t rs law = true -> (x < length rs)%nat ->
  nth x (laws_of t rs law) ([], [])
  = (prepare (metric t) (fst (nth x rs ([], []))),
     joint (nth x law []) (decode (floors t) 0 (snd (nth x rs ([], [])))))
  /\ law_ok (nth x law []) (decode (floors t) 0 (snd (nth x rs ([], [])))) = true.
Proof.
  intro t. induction rs as [|r rs IH]; intros [|b law] x H Hx; cbn [length] in Hx; try lia;
    cbn [all_laws_ok] in H; try discriminate.
  apply andb_prop in H. destruct H as [H1 H2]. destruct x as [|x]; cbn [laws_of nth].
  - split; [reflexivity | exact H1].
  - apply IH; [exact H2 | lia].
Qed.

Lemma laws_length : forall t rs law, all_laws_ok t rs law = true ->
  length (laws_of t rs law) = length rs.
Proof.
  intro t. induction rs as [|r rs IH]; intros [|b law] H; cbn in *; try discriminate; try reflexivity.
  apply andb_prop in H. f_equal. apply IH, H.
Qed.

Lemma pairs_nth : forall t num den l x x', phases_pairs t num den l = true ->
  (x < x')%nat -> (x' < length l)%nat ->
  phase_pair_ok t num den (nth x l ([], [])) (nth x' l ([], [])) = true.
Proof.
  intros t num den. induction l as [|a l IH]; intros x x' H Hx Hx'; cbn [length] in *; [lia|].
  cbn [phases_pairs] in H. apply andb_prop in H. destruct H as [H1 H2].
  destruct x' as [|x']; [lia|]. destruct x as [|x]; cbn [nth].
  - rewrite forallb_forall in H1. apply H1, nth_In. lia.
  - apply IH; [exact H2 | lia | lia].
Qed.

(** What record x shows, and the true epsilon d of two records. *)
Definition seen_by (t : table) (law : list (list ball)) (x : nat) : list Z :=
  joint (nth x law []) (weights t x).

(** Accepted: for every two records, what is seen of one and differs by more than e^(epsilon d) from
    what is seen of the other has probability at most num / den.  d is symmetric for every space but a
    given matrix, which [accept] checks. *)
Theorem balls_private : forall t law num den, balls_ok t law num den = true ->
  forall x x', (x < x')%nat -> (x' < records t)%nat -> d t x x' = d t x' x ->
  let p := seen_by t law x in let q := seen_by t law x' in
  (mass (epsilon t * d t x x') p q <= IZR num / IZR den * IZR (total * total))%R /\
  (mass (epsilon t * d t x' x) q p <= IZR num / IZR den * IZR (total * total))%R /\
  sum p = total * total /\ sum q = total * total.
Proof.
  intros t law num den H x x' Hx Hx' Sym p q. unfold balls_ok in H. rewrite !andb_true_iff in H.
  destruct H as [[[[[[H1 H2] H3] H4] H5] H6] H7].
  apply Z.leb_le in H1, H4. apply Z.ltb_lt in H2, H3, H5.
  assert (Hr : (x < length (rows t))%nat) by (unfold records in Hx'; lia).
  destruct (laws_nth t (rows t) law x H6 Hr) as [E1 L1].
  destruct (laws_nth t (rows t) law x' H6 Hx') as [E2 L2].
  assert (P := pairs_nth t num den _ x x' H7 Hx ltac:(rewrite laws_length by exact H6; exact Hx')).
  rewrite E1, E2 in P. unfold phase_pair_ok in P. cbn [fst snd] in P. rewrite !andb_true_iff in P.
  destruct P as [[[P1 P2] P3] P4]. apply Z.leb_le in P1, P2, P3, P4.
  assert (Lo := nats_low_le (metric t) (epsilon_num t) (epsilon_den t)
    (fst (row_of t x)) (fst (row_of t x')) ltac:(lia) H2 H3).
  unfold row_of in Lo. set (l := nats_low _ _ _ _ _) in *.
  fold (epsilon t) in Lo.
  assert (N1 := joint_nonneg _ _ L1). assert (N2 := joint_nonneg _ _ L2).
  assert (Up : forall a, den * a <= num * (total * total) ->
               (IZR a <= IZR num / IZR den * IZR (total * total))%R).
  { intros a Ha. apply IZR_le in Ha. rewrite !(mult_IZR den), (mult_IZR num) in Ha.
    assert (0 < IZR den)%R by (apply IZR_lt, H5).
    apply Rmult_le_reg_l with (IZR den); [assumption|].
    replace (IZR den * (IZR num / IZR den * IZR (total * total)))%R
      with (IZR num * IZR (total * total))%R by (field; lra). exact Ha. }
  unfold p, q, seen_by, weights, d, row_of in *. repeat split.
  - apply Rle_trans with (2 := Up _ P3). apply mass_le; assumption.
  - apply Rle_trans with (2 := Up _ P4). apply mass_le; try assumption.
    rewrite <- Sym. exact Lo.
  - apply joint_sum, L1.
  - apply joint_sum, L2.
Qed.
