(** The checker: a function on whole numbers, and the theorem that what it accepts is private. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Angle Distance Nats Triangle Table.
Import ListNotations.
Open Scope Z_scope.

(** ** The function *)

(** Two weights whose ratio is at most e / 2^128, either way. *)
Definition ratio_ok (e a b : Z) : bool :=
  match a ?= b with
  | Eq => true
  | Lt => b * one <=? e * a
  | Gt => a * one <=? e * b
  end.

(** Two rows, by the entries above the floor f of either: where both are at it there is nothing to
    look at, however many columns there are. *)
Fixpoint rows_ok (e : Z) (f : Z -> Z) (a : list (Z * Z)) : list (Z * Z) -> bool :=
  fix along (b : list (Z * Z)) : bool :=
    match a, b with
    | [], [] => true
    | (i, x) :: a', [] => ratio_ok e x (f i) && rows_ok e f a' []
    | [], (j, y) :: b' => ratio_ok e (f j) y && along b'
    | (i, x) :: a', (j, y) :: b' =>
        match i ?= j with
        | Lt => ratio_ok e x (f i) && rows_ok e f a' b
        | Gt => ratio_ok e (f j) y && along b'
        | Eq => ratio_ok e x y && rows_ok e f a' b'
        end
    end.

(** The floors by their numbers are those of the list. *)
Fixpoint numbered (f : Z -> Z) (fs : list Z) (i : Z) : bool :=
  match fs with
  | [] => true
  | g :: fs => (f i =? g) && numbered f fs (i + 1)
  end.

(** A record with what was computed of its point once. *)
Definition prepared : Type := record * list Z.

Definition ready (s : space) (r : record) : prepared := (r, prepare s (fst r)).

(** A given matrix has to be symmetric and 0 on the diagonal; the other distances are by themselves. *)
Definition symmetric (s : space) (a b : prepared) : bool :=
  match s with
  | Given _ => entry (tl (snd a)) (head (snd b)) =? entry (tl (snd b)) (head (snd a))
  | _ => true
  end.

(** Two records: distinct (a distance of 0 is refused wherever epsilon can show it), and private. *)
Definition pair_ok (t : table) (a b : prepared) : bool :=
  let l := nats_low (metric t) (epsilon_num t) (epsilon_den t) (snd a) (snd b) in
  let e := exp_low l in
  (0 <=? l) && ((0 <? l) || (epsilon_num t =? 0)) && (one <=? e) && symmetric (metric t) a b
  && rows_ok e (floor_at t) (snd (fst a)) (snd (fst b)).

(** What is known of a tile: its first record, an upper bound on epsilon times the distance from there
    to any of its records, and the largest and smallest weight of every column. *)
Record summary := { centre : prepared; radius : Z; highest : list Z; lowest : list Z }.

Fixpoint zip (f : Z -> Z -> Z) (a b : list Z) : list Z :=
  match a, b with
  | x :: a, y :: b => f x y :: zip f a b
  | _, _ => []
  end.

Definition summarise (t : table) (c : prepared) (tile : list prepared) : summary :=
  let full := map (fun r : prepared => decode (floors t) 0 (snd (fst r))) tile in
  {| centre := c;
     radius := fold_right Z.max 0
       (map (fun r : prepared =>
          nats_high (metric t) (epsilon_num t) (epsilon_den t) (snd c) (snd r)) tile);
     highest := fold_right (zip Z.max) (map (fun _ => 0) (floors t)) full;
     lowest := fold_right (zip Z.min) (map (fun _ => total) (floors t)) full |}.

Fixpoint columns_ok (e : Z) (high low : list Z) : bool :=
  match high, low with
  | h :: high, l :: low => (h * one <=? e * l) && columns_ok e high low
  | [], [] => true
  | _, _ => false
  end.

Definition is_computed (s : space) : bool := match s with Given _ => false | _ => true end.

(** Two tiles so far apart that no ratio of their weights can matter. *)
Definition far (t : table) (a b : summary) : bool :=
  let l := nats_low (metric t) (epsilon_num t) (epsilon_den t) (snd (centre a)) (snd (centre b))
           - radius a - radius b in
  is_computed (metric t) && (0 <=? l)
  && (let e := exp_low l in
      columns_ok e (highest a) (lowest b) && columns_ok e (highest b) (lowest a)).

Fixpoint all_pairs (f : prepared -> prepared -> bool) (l : list prepared) : bool :=
  match l with
  | [] => true
  | a :: l => forallb (f a) l && all_pairs f l
  end.

Definition cross_pairs (f : prepared -> prepared -> bool) (a b : list prepared) : bool :=
  forallb (fun x => forallb (f x) b) a.

Definition tile_pair_ok (t : table) (a b : list prepared * summary) : bool :=
  far t (snd a) (snd b) || cross_pairs (pair_ok t) (fst a) (fst b).

Fixpoint tiles_ok (t : table) (l : list (list prepared * summary)) : bool :=
  match l with
  | [] => true
  | a :: l => all_pairs (pair_ok t) (fst a) && forallb (tile_pair_ok t a) l && tiles_ok t l
  end.

Definition with_summary (t : table) (tile : list record) : list prepared * summary :=
  let tile := map (ready (metric t)) tile in
  (tile, summarise t (hd (ready (metric t) ([], [])) tile) tile).

(** A record by itself: its point and its row. *)
Definition point_ok (s : space) (size : nat) (p : list Z) : bool :=
  match s with
  | Given _ => entry (tl p) (head p) =? 0
  | Euclidean _ => Nat.eqb (length p) size
  | Sphere den => (Z.abs (entry p 0) <=? 90 * den) && (Z.abs (entry p 1) <=? 360 * den)
  | Directions => Nat.eqb (length p) size && (0 <? dot_z p p)
  end.

Definition record_ok (t : table) (size : nat) (r : record) : bool :=
  let w := decode (floors t) 0 (snd r) in
  point_ok (metric t) size (fst r) && used_up (floors t) 0 (snd r)
  && forallb (Z.leb 0) w && (sum w =? total).

Definition dimension (t : table) : nat := length (fst (row_of t 0)).

Definition check (t : table) : bool :=
  (0 <=? epsilon_num t) && (0 <? epsilon_den t) && (0 <? denominator (metric t))
  && numbered (floor_at t) (floors t) 0 && forallb (record_ok t (dimension t)) (rows t)
  && forallb (fun tile => match tile with [] => false | _ => true end) (tiles t)
  && tiles_ok t (map (with_summary t) (tiles t)).

(** ** The proof *)

Section Proof.

Variable t : table.
Hypothesis num_nonneg : 0 <= epsilon_num t.
Hypothesis den_pos : 0 < epsilon_den t.
Hypothesis denominator_pos : 0 < denominator (metric t).
Hypothesis floors_numbered : numbered (floor_at t) (floors t) 0 = true.

Let full (r : record) : list Z := decode (floors t) 0 (snd r).

(** Everything that [record_ok] says. *)
Definition good (r : record) : Prop :=
  fits (metric t) (dimension t) (fst r) /\ (0 <= dist (metric t) (fst r) (fst r))%R /\
  used_up (floors t) 0 (snd r) = true /\ sum (full r) = total /\ (forall w, In w (full r) -> 0 <= w).

(** Two records whose rows keep the promise, both ways. *)
Definition keeps (a b : record) : Prop := forall y : nat,
  (IZR (nth y (full a) 0%Z) <= exp (epsilon t * dist (metric t) (fst a) (fst b))
                             * IZR (nth y (full b) 0%Z))%R /\
  (IZR (nth y (full b) 0%Z) <= exp (epsilon t * dist (metric t) (fst b) (fst a))
                             * IZR (nth y (full a) 0%Z))%R.

Lemma epsilon_nonneg : (0 <= epsilon t)%R.
Proof.
  apply Rmult_le_pos; [apply IZR_le; lia | left; apply Rinv_0_lt_compat, IZR_lt; assumption].
Qed.

Lemma dist_self : forall s p, computed s -> (0 <= dist s p p)%R.
Proof.
  intros s p H. destruct s; simpl in *; [contradiction| | |].
  - apply sqrt_pos.
  - apply Rmult_le_pos; [unfold radius_km; lra | apply acos_bound].
  - apply acos_bound.
Qed.

Lemma record_ok_good : forall r, record_ok t (dimension t) r = true -> good r.
Proof.
  intros r H. unfold record_ok in H. rewrite !andb_true_iff in H.
  destruct H as [[[Hp Hu] Hw] Hs]. unfold good. apply Z.eqb_eq in Hs.
  rewrite forallb_forall in Hw.
  repeat split; try assumption.
  - unfold point_ok, fits in *. destruct (metric t); try exact I.
    + apply Nat.eqb_eq, Hp.
    + apply andb_true_iff in Hp. destruct Hp as [H1 H2].
      split; [apply Nat.eqb_eq, H1 | apply Z.ltb_lt, H2].
  - unfold point_ok in Hp. destruct (metric t) eqn:M; try (apply dist_self; exact I).
    simpl. apply Z.eqb_eq in Hp. rewrite Hp. unfold Rdiv. lra.
  - intros w Hin. apply Z.leb_le, Hw, Hin.
Qed.

Lemma weight_nonneg : forall r y, good r -> 0 <= nth y (full r) 0.
Proof.
  intros r y (_ & _ & _ & _ & H). destruct (nth_in_or_default y (full r) 0) as [Hin | ->]; [|lia].
  apply H, Hin.
Qed.

(** From whole numbers to the promise. *)
Lemma ratio_real : forall e l a b x, 0 <= b -> 0 <= l -> e = exp_low l -> (val l <= x)%R ->
  a * one <= e * b -> (IZR a <= exp x * IZR b)%R.
Proof.
  intros e l a b x Hb Hl -> Hx H.
  destruct (exp_low_le l Hl) as [_ He].
  assert (IZR a <= val (exp_low l) * IZR b)%R.
  { apply Rmult_le_reg_r with (IZR one); [apply one_real|].
    unfold val. replace (IZR (exp_low l) / IZR one * IZR b * IZR one)%R
      with (IZR (exp_low l) * IZR b)%R by (field; apply Rgt_not_eq, one_real).
    rewrite <- !mult_IZR. apply IZR_le, H. }
  assert (exp (val l) <= exp x)%R.
  { destruct Hx as [Hx | ->]; [left; apply exp_increasing, Hx | right; reflexivity]. }
  assert (0 <= IZR b)%R by (apply IZR_le, Hb). nra.
Qed.

Lemma ratio_ok_both : forall e a b, one <= e -> 0 <= a -> 0 <= b -> ratio_ok e a b = true ->
  a * one <= e * b /\ b * one <= e * a.
Proof.
  intros e a b He Ha Hb H. unfold ratio_ok in H. assert (P := one_pos).
  destruct (Z.compare_spec a b); [subst; nia | |]; apply Z.leb_le in H; nia.
Qed.

Lemma used_up_head : forall fs i j w r, used_up fs i ((j, w) :: r) = true -> i <= j.
Proof.
  induction fs as [|f fs IH]; intros i j w r H; simpl in H; [discriminate|].
  destruct (Z.eqb_spec j i); [lia|]. apply IH in H. lia.
Qed.

Lemma ratio_ok_same : forall e a, ratio_ok e a a = true.
Proof. intros. unfold ratio_ok. rewrite Z.compare_refl. reflexivity. Qed.

(** What is left to be looked at from the next column on. *)
Lemma rows_ok_next : forall e g f i a b, g i = f ->
  (forall j w r, a = (j, w) :: r -> i <= j) -> (forall j w r, b = (j, w) :: r -> i <= j) ->
  rows_ok e g a b = true ->
  ratio_ok e (fst (next f i a)) (fst (next f i b)) = true /\
  rows_ok e g (snd (next f i a)) (snd (next f i b)) = true.
Proof.
  intros e g f i a b <- La Lb H. assert (S := ratio_ok_same e (g i)).
  destruct a as [|[j x] a]; destruct b as [|[k y] b]; unfold next.
  - split; [exact S | reflexivity].
  - destruct (Z.eqb_spec k i) as [-> | N]; [|split; assumption].
    cbn in H. apply andb_prop in H. exact H.
  - destruct (Z.eqb_spec j i) as [-> | N]; [|split; assumption].
    cbn in H. apply andb_prop in H. exact H.
  - assert (Lj := La j x a eq_refl). assert (Lk := Lb k y b eq_refl).
    assert (H' := H). cbn in H'.
    destruct (Z.eqb_spec j i) as [-> | N]; destruct (Z.eqb_spec k i) as [-> | M].
    + rewrite Z.compare_refl in H'. apply andb_prop in H'. exact H'.
    + destruct (Z.compare_spec i k); try lia. apply andb_prop in H'. exact H'.
    + destruct (Z.compare_spec j i); try lia. apply andb_prop in H'. exact H'.
    + split; assumption.
Qed.

Lemma rows_ok_both : forall e g, one <= e -> forall fs i a b, numbered g fs i = true ->
  used_up fs i a = true -> used_up fs i b = true ->
  (forall w, In w (decode fs i a) -> 0 <= w) -> (forall w, In w (decode fs i b) -> 0 <= w) ->
  rows_ok e g a b = true -> forall y,
  nth y (decode fs i a) 0 * one <= e * nth y (decode fs i b) 0 /\
  nth y (decode fs i b) 0 * one <= e * nth y (decode fs i a) 0.
Proof.
  intros e g He. induction fs as [|f fs IH]; intros i a b Hn Ua Ub Ha Hb H y.
  - simpl. destruct y; lia.
  - assert (La : forall j w r, a = (j, w) :: r -> i <= j)
      by (intros j w r ->; apply (used_up_head _ _ _ _ _ Ua)).
    assert (Lb : forall j w r, b = (j, w) :: r -> i <= j)
      by (intros j w r ->; apply (used_up_head _ _ _ _ _ Ub)).
    simpl in Hn. apply andb_prop in Hn. destruct Hn as [Hf Hn]. apply Z.eqb_eq in Hf.
    destruct (rows_ok_next e g f i a b Hf La Lb H) as [H1 H2].
    simpl in *. destruct (next f i a) as [u a']. destruct (next f i b) as [v b'].
    simpl in *. destruct y as [|y].
    + apply ratio_ok_both; auto.
    + apply IH; auto.
Qed.

Lemma symmetric_dist : forall a b, symmetric (metric t) (ready (metric t) a) (ready (metric t) b) = true ->
  dist (metric t) (fst a) (fst b) = dist (metric t) (fst b) (fst a).
Proof.
  intros a b H. destruct (metric t) eqn:M; try (apply symmetry; exact I).
  simpl in *. apply Z.eqb_eq in H. rewrite H. reflexivity.
Qed.

Lemma pair_ok_keeps : forall a b, good a -> good b ->
  pair_ok t (ready (metric t) a) (ready (metric t) b) = true -> keeps a b.
Proof.
  intros a b Ga Gb H. unfold pair_ok in H. rewrite !andb_true_iff in H. simpl fst in H. simpl snd in H.
  destruct H as [[[[H0 _] H1] H2] H3]. apply Z.leb_le in H0, H1.
  assert (E := symmetric_dist a b H2).
  assert (L := nats_low_le (metric t) (epsilon_num t) (epsilon_den t) (fst a) (fst b)
                 ltac:(lia) den_pos denominator_pos).
  set (l := nats_low _ _ _ _ _) in *.
  intro y.
  destruct (rows_ok_both _ _ H1 (floors t) 0 (snd a) (snd b) floors_numbered) with (y := y) as [R1 R2].
  - apply Ga.
  - apply Gb.
  - apply Ga.
  - apply Gb.
  - exact H3.
  - split.
    + apply (ratio_real _ l _ _ _ (weight_nonneg b y Gb) H0 eq_refl L R1).
    + rewrite <- E. apply (ratio_real _ l _ _ _ (weight_nonneg a y Ga) H0 eq_refl L R2).
Qed.

(** *** Tiles *)

Lemma zip_nth : forall f a b y, length a = length b -> (y < length a)%nat ->
  nth y (zip f a b) 0 = f (nth y a 0) (nth y b 0).
Proof.
  induction a as [|u a IH]; intros [|v b] y H Hy; simpl in *; try lia.
  destruct y; [reflexivity|]. apply IH; lia.
Qed.

Lemma zip_length : forall f a b, length a = length b -> length (zip f a b) = length a.
Proof.
  induction a as [|u a IH]; intros [|v b] H; simpl in *; try lia. f_equal. apply IH. lia.
Qed.

Lemma fold_zip : forall (f : Z -> Z -> Z) (start : Z) (l : list record),
  let columns := fold_right (zip f) (map (fun _ => start) (floors t)) (map full l) in
  length columns = length (floors t) /\
  forall r y, In r l -> (y < length (floors t))%nat ->
  exists z, nth y columns 0 = z /\
    (forall g : Z -> Z -> Prop, (forall a b, g a (f a b)) -> (forall a b c, g a c -> g a (f b c)) ->
     g (nth y (full r) 0) z).
Proof.
  intros f start l. induction l as [|x l [IHl IH]]; simpl.
  - split; [apply map_length | intros r y []].
  - assert (Lx : length (full x) = length (floors t)) by apply decode_length.
    split; [rewrite zip_length; lia|].
    intros r y Hin Hy. rewrite zip_nth by lia. eexists. split; [reflexivity|].
    intros g G1 G2. destruct Hin as [->|Hin]; [apply G1|].
    destruct (IH r y Hin Hy) as (z & -> & Hz). apply G2, Hz; assumption.
Qed.

Lemma beyond : forall r y, (length (floors t) <= y)%nat -> nth y (full r) 0 = 0.
Proof. intros. apply nth_overflow. unfold full. rewrite decode_length. assumption. Qed.

Lemma columns_ok_nth : forall e high low, columns_ok e high low = true ->
  forall y, nth y high 0 * one <= e * nth y low 0.
Proof.
  induction high as [|h high IH]; intros [|l low] H y; simpl in *; try discriminate.
  - destruct y; lia.
  - apply andb_prop in H. destruct H as [H1 H2]. destruct y; [apply Z.leb_le, H1 | apply IH, H2].
Qed.

Definition summary_of (l : list record) : summary := snd (with_summary t l).

Definition first (l : list record) : record := hd ([], []) l.

Lemma centre_first : forall l, centre (summary_of l) = ready (metric t) (first l).
Proof. intros [|r l]; reflexivity. Qed.

Lemma full_ready : forall l,
  map (fun r : prepared => decode (floors t) 0 (snd (fst r))) (map (ready (metric t)) l) = map full l.
Proof. intro l. rewrite map_map. reflexivity. Qed.

Lemma highest_ge : forall l r y, In r l -> nth y (full r) 0 <= nth y (highest (summary_of l)) 0.
Proof.
  intros l r y Hin. unfold summary_of, with_summary, summarise. simpl. rewrite full_ready.
  destruct (fold_zip Z.max 0 l) as [Hl H].
  destruct (Nat.lt_ge_cases y (length (floors t))) as [Hy|Hy].
  - destruct (H r y Hin Hy) as (z & -> & Hz). apply (Hz Z.le); intros; lia.
  - rewrite beyond by exact Hy. rewrite nth_overflow by lia. lia.
Qed.

Lemma lowest_le : forall l r y, In r l -> nth y (lowest (summary_of l)) 0 <= nth y (full r) 0.
Proof.
  intros l r y Hin. unfold summary_of, with_summary, summarise. simpl. rewrite full_ready.
  destruct (fold_zip Z.min total l) as [Hl H].
  destruct (Nat.lt_ge_cases y (length (floors t))) as [Hy|Hy].
  - destruct (H r y Hin Hy) as (z & -> & Hz). apply (Hz (fun a b => b <= a)); intros; lia.
  - rewrite beyond by exact Hy. rewrite nth_overflow by lia. lia.
Qed.

Lemma radius_ge : forall l r, In r l ->
  (epsilon t * dist (metric t) (fst (first l)) (fst r) <= val (radius (summary_of l)))%R.
Proof.
  intros l r Hin.
  apply Rle_trans with (val (nats_high (metric t) (epsilon_num t) (epsilon_den t)
    (prepare (metric t) (fst (first l))) (prepare (metric t) (fst r)))).
  - apply nats_high_ge; [lia | exact den_pos | exact denominator_pos].
  - apply val_le. unfold summary_of, with_summary, summarise. simpl radius.
    replace (hd (ready (metric t) ([], [])) (map (ready (metric t)) l))
      with (ready (metric t) (first l)) by (destruct l; reflexivity).
    rewrite map_map. simpl snd.
    generalize (fst (first l)). intro c. induction l as [|x l IH]; [destruct Hin|].
    simpl. destruct Hin as [->|Hin]; [lia|]. specialize (IH Hin). lia.
Qed.

(** Far tiles: by the triangle inequality every pair of their records is far enough. *)
Lemma far_keeps : forall l m, (forall r, In r l -> good r) -> (forall r, In r m -> good r) ->
  l <> [] -> m <> [] -> far t (summary_of l) (summary_of m) = true ->
  forall a b, In a l -> In b m -> keeps a b.
Proof.
  intros l m Gl Gm Nl Nm H a b Ha Hb. unfold far in H. rewrite !andb_true_iff in H.
  destruct H as [[H0 H1] [H2 H3]]. apply Z.leb_le in H1.
  assert (C : computed (metric t)) by (destruct (metric t); try exact I; discriminate).
  assert (Fl : In (first l) l) by (destruct l; [congruence | left; reflexivity]).
  assert (Fm : In (first m) m) by (destruct m; [congruence | left; reflexivity]).
  rewrite !centre_first in *. simpl snd in *.
  set (l0 := nats_low _ _ _ _ _ - _ - _) in *.
  assert (L := nats_low_le (metric t) (epsilon_num t) (epsilon_den t) (fst (first l)) (fst (first m))
                 ltac:(lia) den_pos denominator_pos).
  assert (Ra := radius_ge l a Ha). assert (Rb := radius_ge m b Hb).
  assert (Fit : forall r, good r -> fits (metric t) (dimension t) (fst r)) by (intros r G; apply G).
  assert (T1 := triangle (metric t) (dimension t) (fst (first l)) (fst a) (fst (first m)) C
                  denominator_pos (Fit _ (Gl _ Fl)) (Fit _ (Gl _ Ha)) (Fit _ (Gm _ Fm))).
  assert (T2 := triangle (metric t) (dimension t) (fst a) (fst b) (fst (first m)) C
                  denominator_pos (Fit _ (Gl _ Ha)) (Fit _ (Gm _ Hb)) (Fit _ (Gm _ Fm))).
  rewrite (symmetry (metric t) (fst b) (fst (first m)) C) in T2.
  assert (Long : (val l0 <= epsilon t * dist (metric t) (fst a) (fst b))%R).
  { unfold l0. rewrite !val_minus. fold (epsilon t) in L.
    assert (E := epsilon_nonneg).
    assert (epsilon t * dist (metric t) (fst (first l)) (fst (first m))
            <= epsilon t * (dist (metric t) (fst (first l)) (fst a)
               + (dist (metric t) (fst a) (fst b) + dist (metric t) (fst (first m)) (fst b))))%R
      by (apply Rmult_le_compat_l; lra).
    lra. }
  intro y.
  assert (K1 := columns_ok_nth _ _ _ H2 y). assert (K2 := columns_ok_nth _ _ _ H3 y).
  assert (A1 := highest_ge l a y Ha). assert (A2 := lowest_le l a y Ha).
  assert (B1 := highest_ge m b y Hb). assert (B2 := lowest_le m b y Hb).
  destruct (exp_low_le l0 H1) as [E0 _]. assert (P := one_pos).
  split.
  - apply (ratio_real _ l0 _ _ _ (weight_nonneg b y (Gm _ Hb)) H1 eq_refl Long). nia.
  - rewrite (symmetry (metric t) (fst b) (fst a) C).
    apply (ratio_real _ l0 _ _ _ (weight_nonneg a y (Gl _ Ha)) H1 eq_refl Long). nia.
Qed.

Lemma all_pairs_keeps : forall l, (forall r, In r l -> good r) ->
  all_pairs (pair_ok t) (map (ready (metric t)) l) = true -> ForallOrdPairs keeps l.
Proof.
  induction l as [|a l IH]; intros G H; [constructor|]. simpl in H.
  apply andb_prop in H. destruct H as [H1 H2]. rewrite forallb_forall in H1.
  constructor.
  - apply Forall_forall. intros b Hb. apply pair_ok_keeps.
    + apply G. left. reflexivity.
    + apply G. right. exact Hb.
    + apply H1, in_map, Hb.
  - apply IH; [|exact H2]. intros r Hr. apply G. right. exact Hr.
Qed.

Lemma ordered_app : forall (P : record -> record -> Prop) l m,
  ForallOrdPairs P l -> ForallOrdPairs P m -> (forall a b, In a l -> In b m -> P a b) ->
  ForallOrdPairs P (l ++ m).
Proof.
  induction l as [|a l IH]; intros m Hl Hm H; simpl; [exact Hm|].
  inversion Hl; subst. constructor.
  - apply Forall_app. split; [assumption|]. apply Forall_forall. intros b Hb. apply H; [left|]; auto.
  - apply IH; auto. intros x b Hx Hb. apply H; [right|]; assumption.
Qed.

Lemma tiles_ok_keeps : forall l, (forall r, In r (concat l) -> good r) ->
  (forall tile, In tile l -> tile <> []) ->
  tiles_ok t (map (with_summary t) l) = true -> ForallOrdPairs keeps (concat l).
Proof.
  induction l as [|a l IH]; intros G N H; simpl; [constructor|].
  cbn [tiles_ok map] in H. rewrite !andb_true_iff in H. destruct H as [[H1 H2] H3].
  rewrite forallb_forall in H2.
  assert (Ga : forall r, In r a -> good r) by (intros; apply G; simpl; apply in_or_app; auto).
  assert (Gl : forall r, In r (concat l) -> good r) by (intros; apply G; simpl; apply in_or_app; auto).
  apply ordered_app.
  - apply all_pairs_keeps; assumption.
  - apply IH; auto. intros tile Ht. apply N. right. exact Ht.
  - intros x y Hx Hy. apply in_concat in Hy. destruct Hy as (m & Hm & Hy).
    assert (Gm : forall r, In r m -> good r) by (intros r Hr; apply Gl, in_concat; eauto).
    specialize (H2 (with_summary t m) (in_map _ _ _ Hm)).
    unfold tile_pair_ok in H2. apply orb_true_iff in H2. destruct H2 as [H2|H2].
    + apply far_keeps with a m; auto.
      * apply N. left. reflexivity.
      * apply N. right. exact Hm.
    + unfold cross_pairs in H2. simpl fst in H2. rewrite forallb_forall in H2.
      specialize (H2 (ready (metric t) x) (in_map _ _ _ Hx)). rewrite forallb_forall in H2.
      apply pair_ok_keeps; auto. apply H2, in_map, Hy.
Qed.

End Proof.

Lemma check_parts : forall t, check t = true ->
  0 <= epsilon_num t /\ 0 < epsilon_den t /\ 0 < denominator (metric t) /\
  (forall r, In r (rows t) -> good t r) /\ ForallOrdPairs (keeps t) (rows t).
Proof.
  intros t H. unfold check in H. rewrite !andb_true_iff in H.
  destruct H as [[[[[[H1 H2] H3] Hn] H4] H5] H6]. apply Z.leb_le in H1. apply Z.ltb_lt in H2, H3.
  rewrite forallb_forall in H4, H5.
  assert (G : forall r, In r (rows t) -> good t r).
  { intros r Hr. apply record_ok_good; auto. }
  refine (conj H1 (conj H2 (conj H3 (conj G _)))). apply tiles_ok_keeps; auto.
  intros tile Ht E. specialize (H5 tile Ht). subst. discriminate.
Qed.

(** A table that [check] accepts is epsilon-mDP: for all records x, x' and outputs y,
    W x y <= exp(epsilon d(x, x')) W x' y, with d the true distance. *)
Theorem check_private : forall t, check t = true -> private t.
Proof.
  intros t H x x' y Hx Hx'. destruct (check_parts t H) as (H1 & H2 & H3 & G & K).
  assert (Ix : In (row_of t x) (rows t)) by (apply nth_In, Hx).
  assert (Ix' : In (row_of t x') (rows t)) by (apply nth_In, Hx').
  unfold W, weights, d.
  destruct (ForallOrdPairs_In K _ _ Ix Ix') as [E | [E | E]].
  - rewrite <- E. destruct (G _ Ix) as (_ & D & _ & _ & _).
    assert (0 <= IZR (nth y (decode (floors t) 0 (snd (row_of t x))) 0%Z))%R
      by (apply IZR_le, (weight_nonneg t _ y (G _ Ix))).
    assert (1 <= exp (epsilon t * dist (metric t) (fst (row_of t x)) (fst (row_of t x))))%R.
    { rewrite <- exp_0. 
      assert (N : (0 <= epsilon t * dist (metric t) (fst (row_of t x)) (fst (row_of t x)))%R)
        by (apply Rmult_le_pos; [apply epsilon_nonneg; lia | exact D]).
      destruct N as [N | <-]; [left; apply exp_increasing, N | right; reflexivity]. }
    nra.
  - apply E.
  - apply E.
Qed.

(** Its rows are weights that are not negative and sum to 2^62. *)
Theorem check_stochastic : forall t, check t = true -> stochastic t.
Proof.
  intros t H x Hx. destruct (check_parts t H) as (_ & _ & _ & G & _).
  destruct (G (row_of t x) (nth_In _ _ Hx)) as (_ & _ & _ & Hs & Hw). split; assumption.
Qed.
