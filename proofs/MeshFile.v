(** Tables for every point of an area, in whole numbers: the mesh as it lies in a file, the function that
    checks it, and the theorem that what it accepts is private between all points of the area.

    Vertices and triangles are those of Lattice.v.  The area is the convex hull of its corners,
    coordinates over [corner_unit]. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Distance Processing Mesh Cover Lattice.
Import ListNotations.
Open Scope Z_scope.

(** ** The function *)

Record mesh := {
  spacing_num : Z;
  spacing_den : Z;
  rate_num : Z;
  rate_den : Z;
  corner_unit : Z;
  corners : list (Z * Z);
  axes : list (Z * Z);  (* forms p u + q v along which the area is looked at: any will do *)
  row_at : Z -> Z -> option (list Z)
}.

Definition earth : Z := 63710088.

(** stretch^2 |gradient|^2 <= rate^2 least^2 for three weights of one output. *)
Definition rate_ok (m : mesh) (far a b c : Z) : bool :=
  let least := Z.min a (Z.min b c) in
  let changes := (a - b) * (a - b) + (b - c) * (b - c) + (c - a) * (c - a) in
  let n := spacing_num m * spacing_num m in let k := spacing_den m * spacing_den m in
  let whole := k * (earth * earth) in
  let stretched := whole + far * n * 100000000 in
  (0 <=? least)
  && (2 * changes * (rate_den m * rate_den m) * k * (stretched * stretched)
      <=? 3 * n * (rate_num m * rate_num m) * (whole * whole) * (least * least)).

Fixpoint rates_ok (m : mesh) (far : Z) (a b c : list Z) : bool :=
  match a, b, c with
  | [], [], [] => true
  | x :: a, y :: b, z :: c => rate_ok m far x y z && rates_ok m far a b c
  | _, _, _ => false
  end.

(** A triangle that has its corners: near the middle, and no output changes too fast in it. *)
Definition complete_ok (m : mesh) (i j e : Z) (a b c : list Z) : bool :=
  (100 * (spacing_num m * spacing_num m * 100000000) * farthest i j e
   <=? spacing_den m * spacing_den m * (earth * earth))
  && rates_ok m (farthest i j e) a b c.

Definition min_of (l : list Z) : Z := fold_right Z.min (hd 0 l) l.
Definition max_of (l : list Z) : Z := fold_right Z.max (hd 0 l) l.

(** A triangle that the form of an axis separates from the area, by more than 1e-6 spacings. *)
Definition separated (m : mesh) (i j e : Z) (axis : Z * Z) : bool :=
  let (p, q) := axis in
  let area := map (fun c : Z * Z => p * fst c + q * snd c) (corners m) in
  let own := map (Z.mul (corner_unit m)) [p * i + q * j; p * (i + e) + q * j; p * i + q * (j + e)] in
  let gap := Z.max (min_of own - max_of area) (min_of area - max_of own) in
  (0 <? gap)
  && (4 * (corner_unit m * corner_unit m) * (p * p - p * q + q * q) <? 3000000000000 * (gap * gap)).

Definition triangle_ok (m : mesh) (i j e : Z) : bool :=
  match row_at m i j, row_at m (i + e) j, row_at m i (j + e) with
  | Some a, Some b, Some c => complete_ok m i j e a b c
  | _, _, _ => existsb (separated m i j e) (axes m)
  end.

Fixpoint range (low : Z) (count : nat) : list Z :=
  match count with
  | O => []
  | S count => low :: range (low + 1) count
  end.

(** The cells that the area spans, and two around it. *)
Definition span (m : mesh) (l : list Z) : list Z :=
  let low := min_of l / corner_unit m in
  range (low - 2) (Z.to_nat (max_of l / corner_unit m - low + 5)).

Definition mesh_ok (m : mesh) : bool :=
  (0 <? spacing_num m) && (0 <? spacing_den m) && (0 <=? rate_num m) && (0 <? rate_den m)
  && (0 <? corner_unit m) && (match corners m with [] => false | _ => true end)
  && forallb (fun i => forallb (fun j => triangle_ok m i j 1 && triangle_ok m (i + 1) (j + 1) (-1))
                         (span m (map snd (corners m)))) (span m (map fst (corners m))).

(** ** The area *)

Open Scope R_scope.

Fixpoint total_of (ws : list R) : R := match ws with [] => 0 | w :: ws => w + total_of ws end.
Fixpoint mean (ws : list R) (zs : list Z) : R :=
  match ws, zs with w :: ws, z :: zs => w * IZR z + mean ws zs | _, _ => 0 end.

(** The points of the area: means of its corners. *)
Definition in_area (m : mesh) (p : point) : Prop := exists ws : list R,
  length ws = length (corners m) /\ (forall w, In w ws -> 0 <= w) /\ total_of ws = 1 /\
  mean ws (map fst (corners m)) = IZR (corner_unit m) * fst p /\
  mean ws (map snd (corners m)) = IZR (corner_unit m) * snd p.

Lemma min_of_le : forall l a, In a l -> (min_of l <= a)%Z.
Proof.
  intros l a H. unfold min_of. generalize (hd 0%Z l). intro h.
  induction l as [|b l IH]; [destruct H|]. simpl. destruct H as [->|H]; [lia | specialize (IH H); lia].
Qed.

Lemma max_of_ge : forall l a, In a l -> (a <= max_of l)%Z.
Proof.
  intros l a H. unfold max_of. generalize (hd 0%Z l). intro h.
  induction l as [|b l IH]; [destruct H|]. simpl. destruct H as [->|H]; [lia | specialize (IH H); lia].
Qed.

Lemma mean_between : forall ws zs (lo hi : Z), length ws = length zs -> (forall w, In w ws -> 0 <= w) ->
  (forall z, In z zs -> (lo <= z <= hi)%Z) ->
  IZR lo * total_of ws <= mean ws zs <= IZR hi * total_of ws.
Proof.
  induction ws as [|w ws IH]; intros [|z zs] lo hi L W B; simpl in *; try discriminate; [lra|].
  destruct (IH zs lo hi ltac:(lia) (fun x H => W x (or_intror H)) (fun x H => B x (or_intror H))) as [I1 I2].
  assert (0 <= w) by (apply W; left; reflexivity).
  destruct (B z (or_introl eq_refl)) as [B1 B2]. apply IZR_le in B1, B2. split; nra.
Qed.

Lemma mean_form : forall (p q : Z) ws (cs : list (Z * Z)), length ws = length cs ->
  mean ws (map (fun c : Z * Z => (p * fst c + q * snd c)%Z) cs)
  = IZR p * mean ws (map fst cs) + IZR q * mean ws (map snd cs).
Proof.
  intros p q. induction ws as [|w ws IH]; intros [|c cs] L; simpl in *; try discriminate; [ring|].
  rewrite IH by lia. rewrite plus_IZR, !mult_IZR. ring.
Qed.

(** A form has a value in the area between those of the corners. *)
Lemma area_form : forall m P (p q : Z), in_area m P ->
  let l := map (fun c : Z * Z => (p * fst c + q * snd c)%Z) (corners m) in
  IZR (min_of l) <= IZR (corner_unit m) * (IZR p * fst P + IZR q * snd P) <= IZR (max_of l).
Proof.
  intros m P p q (ws & L & W & T & E1 & E2) l.
  replace (IZR (corner_unit m) * (IZR p * fst P + IZR q * snd P))
    with (mean ws l) by (unfold l; rewrite mean_form by exact L; rewrite E1, E2; ring).
  assert (B := mean_between ws l (min_of l) (max_of l)). rewrite T, !Rmult_1_r in B. apply B.
  - unfold l. rewrite map_length. exact L.
  - exact W.
  - intros z Hz. split; [apply min_of_le | apply max_of_ge]; exact Hz.
Qed.

Fixpoint blend (t : R) (a b : list R) : list R :=
  match a, b with x :: a, y :: b => ((1 - t) * x + t * y) :: blend t a b | _, _ => [] end.

Lemma blend_spec : forall t a b, length a = length b ->
  length (blend t a b) = length a /\ total_of (blend t a b) = (1 - t) * total_of a + t * total_of b /\
  (0 <= t <= 1 -> (forall w, In w a -> 0 <= w) -> (forall w, In w b -> 0 <= w) ->
   forall w, In w (blend t a b) -> 0 <= w) /\
  (forall zs, mean (blend t a b) zs = (1 - t) * mean a zs + t * mean b zs).
Proof.
  intro t. induction a as [|x a IH]; intros [|y b] L; simpl in *; try discriminate.
  - repeat split; try ring; [intros _ _ _ w [] | intro; ring].
  - destruct (IH b ltac:(lia)) as (I1 & I2 & I3 & I4). repeat split.
    + rewrite I1. reflexivity.
    + rewrite I2. ring.
    + intros Ht A B w [<-|H].
      * assert (0 <= x) by (apply A; left; reflexivity). assert (0 <= y) by (apply B; left; reflexivity). nra.
      * apply I3; auto.
    + intros [|z zs]; [simpl; ring|]. rewrite I4. ring.
Qed.

Lemma area_convex : forall m P Q t, 0 <= t <= 1 -> in_area m P -> in_area m Q -> in_area m (along P Q t).
Proof.
  intros m P Q t Ht (a & La & Wa & Ta & A1 & A2) (b & Lb & Wb & Tb & B1 & B2).
  destruct (blend_spec t a b ltac:(lia)) as (L & T & W & M). exists (blend t a b).
  repeat split.
  - lia.
  - apply W; assumption.
  - rewrite T, Ta, Tb. ring.
  - rewrite M, A1, B1. unfold along. simpl. ring.
  - rewrite M, A2, B2. unfold along. simpl. ring.
Qed.

(** ** The whole area *)

Section Area.
Variable m : mesh.
Hypothesis ok : mesh_ok m = true.

Let side : R := IZR (spacing_num m) / IZR (spacing_den m) / radius_km.
Let rate : R := IZR (rate_num m) / IZR (rate_den m).

(** The distance on the sphere of two points of the plane, in km. *)
Definition true_distance (P Q : point) : R :=
  radius_km * angle_between (place_of side P) (place_of side Q).

(** The weight of output y at a vertex, 0 where there is none. *)
Definition at_vertex (y : nat) (i j : Z) : R :=
  match row_at m i j with Some row => IZR (nth y row 0%Z) | None => 0 end.

(** f is linear in every triangle, with the weights of its corners: what a draw at a corner with the
    point's barycentric weight makes of them. *)
Definition interpolates (y : nat) (f : point -> R) : Prop := forall i j e a b, (e = 1 \/ e = -1)%Z ->
  0 <= a -> 0 <= b -> a + b <= 1 ->
  f (at_weights i j e a b) = value3 (at_vertex y i j) (at_vertex y (i + e) j) (at_vertex y i (j + e)) a b.

Lemma mesh_facts : (0 < spacing_num m)%Z /\ (0 < spacing_den m)%Z /\ (0 <= rate_num m)%Z /\
  (0 < rate_den m)%Z /\ (0 < corner_unit m)%Z /\
  (forall i j, In i (span m (map fst (corners m))) -> In j (span m (map snd (corners m))) ->
   triangle_ok m i j 1 = true /\ triangle_ok m (i + 1) (j + 1) (-1) = true).
Proof.
  unfold mesh_ok in ok. rewrite !andb_true_iff in ok.
  destruct ok as [[[[[[H1 H2] H3] H4] H5] _] H7].
  apply Z.ltb_lt in H1, H2, H4, H5. apply Z.leb_le in H3. rewrite forallb_forall in H7.
  repeat split; try assumption; intros; specialize (H7 i H); rewrite forallb_forall in H7;
    specialize (H7 j H0); apply andb_prop in H7; tauto.
Qed.

Lemma range_in : forall count low z, (low <= z < low + Z.of_nat count)%Z -> In z (range low count).
Proof.
  induction count as [|count IH]; intros low z H; [simpl in H; lia|]. cbn [range].
  destruct (Z.eq_dec z low) as [->|N]; [left; reflexivity | right; apply IH; lia].
Qed.

Lemma span_in : forall l (u : R), IZR (min_of l) <= IZR (corner_unit m) * u <= IZR (max_of l) ->
  In (Int_part u) (span m l).
Proof.
  intros l u [H1 H2]. destruct mesh_facts as (_ & _ & _ & _ & U & _).
  assert (RU : 0 < IZR (corner_unit m)) by (apply IZR_lt, U).
  destruct (base_Int_part u) as [F1 F2]. set (i := Int_part u) in *.
  assert (A : (min_of l / corner_unit m <= i)%Z).
  { assert (min_of l < corner_unit m * (i + 1))%Z.
    { apply lt_IZR. rewrite mult_IZR, plus_IZR. apply Rle_lt_trans with (1 := H1).
      apply Rmult_lt_compat_l; lra. }
    assert (min_of l / corner_unit m < i + 1)%Z by (apply Z.div_lt_upper_bound; lia). lia. }
  assert (B : (i <= max_of l / corner_unit m)%Z).
  { apply Z.div_le_lower_bound; [exact U|]. apply le_IZR. rewrite mult_IZR.
    apply Rle_trans with (2 := H2). apply Rmult_le_compat_l; lra. }
  unfold span. apply range_in. rewrite Z2Nat.id by lia. lia.
Qed.

(** The triangles that are there, with what was checked of them. *)
Definition there (i j e : Z) : Prop := (e = 1 \/ e = -1)%Z /\ exists a b c,
  row_at m i j = Some a /\ row_at m (i + e) j = Some b /\ row_at m i (j + e) = Some c /\
  complete_ok m i j e a b c = true.

(** A triangle that is not there has no point of the area. *)
Lemma not_separated : forall i j e a b, (e = 1 \/ e = -1)%Z -> 0 <= a -> 0 <= b -> a + b <= 1 ->
  in_area m (at_weights i j e a b) -> triangle_ok m i j e = true -> there i j e.
Proof.
  intros i j e a b He Ha Hb Hab In_ T.
  destruct mesh_facts as (_ & _ & _ & _ & U & _).
  assert (RU : 0 < IZR (corner_unit m)) by (apply IZR_lt, U).
  assert (No : existsb (separated m i j e) (axes m) = true -> False).
  { intro E. apply existsb_exists in E. destruct E as ([p q] & _ & E). unfold separated in E.
    apply andb_prop in E. destruct E as [E _]. apply Z.ltb_lt in E.
    assert (F := area_form m _ p q In_). cbv zeta in F.
    set (area := map _ (corners m)) in *.
    set (own := map _ [_; _; _]) in *.
    assert (O : forall z, In z own -> IZR (min_of own) <= IZR z <= IZR (max_of own)).
    { intros z Hz. split; apply IZR_le; [apply min_of_le | apply max_of_ge]; exact Hz. }
    assert (O1 := O _ (or_introl eq_refl)). assert (O2 := O _ (or_intror (or_introl eq_refl))).
    assert (O3 := O _ (or_intror (or_intror (or_introl eq_refl)))).
    set (v := IZR (corner_unit m) * (IZR p * fst (at_weights i j e a b) + IZR q * snd (at_weights i j e a b))) in *.
    assert (V : v = (1 - a - b) * IZR (corner_unit m * (p * i + q * j))
                  + a * IZR (corner_unit m * (p * (i + e) + q * j))
                  + b * IZR (corner_unit m * (p * i + q * (j + e)))).
    { unfold v, at_weights. cbn [fst snd]. rewrite ?mult_IZR, ?plus_IZR, ?mult_IZR, ?plus_IZR. ring. }
    assert (Vo : IZR (min_of own) <= v <= IZR (max_of own)) by (rewrite V; split; nra).
    assert (L1 : (min_of own <= max_of area)%Z) by (apply le_IZR; lra).
    assert (L2 : (min_of area <= max_of own)%Z) by (apply le_IZR; lra). lia. }
  split; [exact He|]. unfold triangle_ok in T.
  destruct (row_at m i j) as [r1|]; [|destruct (No T)].
  destruct (row_at m (i + e) j) as [r2|]; [|destruct (No T)].
  destruct (row_at m i (j + e)) as [r3|]; [|destruct (No T)].
  exists r1, r2, r3. repeat split. exact T.
Qed.

(** Every point of the area lies in a triangle of its span that is there. *)
Definition triangles : list (Z * Z * Z) :=
  flat_map (fun i => flat_map (fun j => [(i, j, 1%Z); ((i + 1)%Z, (j + 1)%Z, (-1)%Z)])
    (span m (map snd (corners m)))) (span m (map fst (corners m))).

Lemma cover : forall P, in_area m P -> exists i j e a b, In (i, j, e) triangles /\ there i j e /\
  0 <= a /\ 0 <= b /\ a + b <= 1 /\ P = at_weights i j e a b.
Proof.
  intros [u v] In_. destruct mesh_facts as (_ & _ & _ & _ & _ & Tri).
  assert (Fu := area_form m (u, v) 1 0 In_). assert (Fv := area_form m (u, v) 0 1 In_).
  cbv zeta in Fu, Fv. cbn [fst snd] in Fu, Fv.
  assert (Mu : map (fun c : Z * Z => (1 * fst c + 0 * snd c)%Z) (corners m) = map fst (corners m))
    by (apply map_ext; intros; lia).
  assert (Mv : map (fun c : Z * Z => (0 * fst c + 1 * snd c)%Z) (corners m) = map snd (corners m))
    by (apply map_ext; intros; lia).
  rewrite Mu in Fu. rewrite Mv in Fv.
  replace (1 * u + 0 * v) with u in Fu by ring. replace (0 * u + 1 * v) with v in Fv by ring.
  assert (Iu := span_in _ u Fu). assert (Iv := span_in _ v Fv).
  destruct (base_Int_part u) as [U1 U2]. destruct (base_Int_part v) as [V1 V2].
  set (i := Int_part u) in *. set (j := Int_part v) in *.
  destruct (Tri i j Iu Iv) as [T1 T2].
  assert (Listed : forall t, In t [(i, j, 1%Z); ((i + 1)%Z, (j + 1)%Z, (-1)%Z)] -> In t triangles).
  { intros t Ht. unfold triangles. apply in_flat_map. exists i. split; [exact Iu|].
    apply in_flat_map. exists j. split; [exact Iv | exact Ht]. }
  destruct (Rle_dec ((u - IZR i) + (v - IZR j)) 1) as [L|L].
  - assert (E : (u, v) = at_weights i j 1 (u - IZR i) (v - IZR j)) by (unfold at_weights; f_equal; ring).
    exists i, j, 1%Z, (u - IZR i), (v - IZR j). repeat split; try lra; try exact E.
    + apply Listed. left. reflexivity.
    + left. reflexivity.
    + rewrite E in In_. apply (not_separated i j 1 _ _ (or_introl eq_refl)) in In_; try lra; try exact T1.
      apply In_.
  - apply Rnot_le_lt in L.
    assert (E : (u, v) = at_weights (i + 1) (j + 1) (-1) (IZR i + 1 - u) (IZR j + 1 - v)).
    { unfold at_weights. rewrite !plus_IZR. f_equal; ring. }
    exists (i + 1)%Z, (j + 1)%Z, (-1)%Z, (IZR i + 1 - u), (IZR j + 1 - v). repeat split; try lra; try exact E.
    + apply Listed. right. left. reflexivity.
    + right. reflexivity.
    + rewrite E in In_. apply (not_separated _ _ (-1) _ _ (or_intror eq_refl)) in In_; try lra; try exact T2.
      apply In_.
Qed.

Lemma earth_real : radius_km = IZR earth / 10000.
Proof. unfold radius_km, earth. lra. Qed.

Lemma side_pos : 0 < side.
Proof.
  destruct mesh_facts as (H1 & H2 & _). unfold side, radius_km.
  assert (0 < IZR (spacing_num m)) by (apply IZR_lt, H1).
  assert (0 < / IZR (spacing_den m)) by (apply Rinv_0_lt_compat, IZR_lt, H2). unfold Rdiv. nra.
Qed.

(** What was checked of a triangle that is there, in real numbers. *)
Lemma there_real : forall i j e y, there i j e ->
  let z1 := at_vertex y i j in let z2 := at_vertex y (i + e) j in let z3 := at_vertex y i (j + e) in
  let t := side * side * IZR (farthest i j e) in
  let least := Rmin z1 (Rmin z2 z3) in
  t <= / 100 /\ 0 <= z1 /\ 0 <= z2 /\ 0 <= z3 /\
  2 * ((z1 - z2) * (z1 - z2) + (z2 - z3) * (z2 - z3) + (z3 - z1) * (z3 - z1)) * ((1 + t) * (1 + t))
  <= 3 * (side * side) * ((rate * radius_km) * (rate * radius_km)) * (least * least).
Proof.
  intros i j e y (He & ra & rb & rc & E1 & E2 & E3 & C) z1 z2 z3 t least.
  destruct mesh_facts as (H1 & H2 & H3 & H4 & _ & _).
  unfold complete_ok in C. apply andb_prop in C. destruct C as [C1 C2]. apply Z.leb_le in C1.
  assert (N : 0 < IZR (spacing_num m)) by (apply IZR_lt, H1).
  assert (K : 0 < IZR (spacing_den m)) by (apply IZR_lt, H2).
  assert (D : 0 < IZR (rate_den m)) by (apply IZR_lt, H4).
  set (far := farthest i j e) in *.
  assert (Side : side = IZR (spacing_num m) * 10000 / (IZR (spacing_den m) * IZR earth)).
  { unfold side. rewrite earth_real. field. repeat split; try lra. unfold earth. lra. }
  assert (Er : 0 < IZR earth) by (unfold earth; lra).
  split.
  { unfold t. rewrite Side. apply IZR_le in C1. rewrite ?mult_IZR in C1.
    apply Rmult_le_reg_r with (100 * (IZR (spacing_den m) * IZR earth) * (IZR (spacing_den m) * IZR earth)).
    - repeat apply Rmult_lt_0_compat; lra.
    - replace (/ 100 * (100 * (IZR (spacing_den m) * IZR earth) * (IZR (spacing_den m) * IZR earth)))
        with (IZR (spacing_den m) * IZR (spacing_den m) * (IZR earth * IZR earth)) by field.
      replace (IZR (spacing_num m) * 10000 / (IZR (spacing_den m) * IZR earth) *
        (IZR (spacing_num m) * 10000 / (IZR (spacing_den m) * IZR earth)) * IZR far *
        (100 * (IZR (spacing_den m) * IZR earth) * (IZR (spacing_den m) * IZR earth)))
        with (100 * (IZR (spacing_num m) * IZR (spacing_num m) * 100000000) * IZR far)
        by (field; lra). exact C1. }
  assert (One : forall a b c, rate_ok m far a b c = true ->
    (0 <= a)%Z /\ (0 <= b)%Z /\ (0 <= c)%Z /\
    2 * ((IZR a - IZR b) * (IZR a - IZR b) + (IZR b - IZR c) * (IZR b - IZR c)
         + (IZR c - IZR a) * (IZR c - IZR a)) * ((1 + t) * (1 + t))
    <= 3 * (side * side) * ((rate * radius_km) * (rate * radius_km))
       * (Rmin (IZR a) (Rmin (IZR b) (IZR c)) * Rmin (IZR a) (Rmin (IZR b) (IZR c)))).
  { intros a b c R. unfold rate_ok in R. apply andb_prop in R. destruct R as [R0 R].
    apply Z.leb_le in R0, R. repeat split; try lia.
    apply IZR_le in R. rewrite ?mult_IZR, ?plus_IZR, ?mult_IZR, ?minus_IZR in R.
    assert (Min : Rmin (IZR a) (Rmin (IZR b) (IZR c)) = IZR (Z.min a (Z.min b c))).
    { assert (M : forall p q, Rmin (IZR p) (IZR q) = IZR (Z.min p q)).
      { intros p q. destruct (Z.min_spec p q) as [[H ->] | [H ->]];
          [apply Rmin_left | apply Rmin_right]; apply IZR_le; lia. }
      rewrite !M. reflexivity. }
    rewrite Min. set (L := IZR (Z.min a (Z.min b c))) in *.
    set (ch := (IZR a - IZR b) * (IZR a - IZR b) + (IZR b - IZR c) * (IZR b - IZR c)
         + (IZR c - IZR a) * (IZR c - IZR a)) in *.
    unfold t, rate. rewrite Side. rewrite earth_real.
    set (n := IZR (spacing_num m)) in *. set (k := IZR (spacing_den m)) in *.
    set (en := IZR (rate_num m)) in *. set (ed := IZR (rate_den m)) in *. set (E := IZR earth) in *.
    set (F := IZR far) in *.
    apply Rmult_le_reg_r with (ed * ed * (k * k) * ((k * k * (E * E)) * (k * k * (E * E)))).
    { repeat apply Rmult_lt_0_compat; lra. }
    replace (2 * ch * ((1 + n * 10000 / (k * E) * (n * 10000 / (k * E)) * F) *
       (1 + n * 10000 / (k * E) * (n * 10000 / (k * E)) * F)) *
       (ed * ed * (k * k) * (k * k * (E * E) * (k * k * (E * E)))))
      with (2 * ch * (ed * ed) * (k * k) * ((k * k * (E * E) + F * (n * n) * 100000000) *
            (k * k * (E * E) + F * (n * n) * 100000000))) by (field; lra).
    replace (3 * (n * 10000 / (k * E) * (n * 10000 / (k * E))) *
       (en / ed * (E / 10000) * (en / ed * (E / 10000))) * (L * L) *
       (ed * ed * (k * k) * (k * k * (E * E) * (k * k * (E * E)))))
      with (3 * (n * n) * (en * en) * ((k * k * (E * E)) * (k * k * (E * E))) * (L * L)) by (field; lra).
    exact R. }
  assert (Zero : rate_ok m far 0 0 0 = true).
  { unfold rate_ok. cbn. rewrite !Z.mul_0_r. reflexivity. }
  assert (All : forall a b c, rates_ok m far a b c = true -> forall k,
    rate_ok m far (nth k a 0%Z) (nth k b 0%Z) (nth k c 0%Z) = true).
  { induction a as [|x a IH]; intros [|x2 b] [|x3 c] H k; cbn [rates_ok] in H; try discriminate.
    - destruct k; exact Zero.
    - apply andb_prop in H. destruct H as [Ha Hb]. destruct k as [|k]; cbn [nth]; [exact Ha | apply IH, Hb]. }
  destruct (One _ _ _ (All _ _ _ C2 y)) as (A1 & A2 & A3 & A4).
  unfold least, z1, z2, z3, at_vertex. rewrite E1, E2, E3.
  repeat split; try (apply IZR_le; assumption). exact A4.
Qed.

(** Where a point of a segment lies in a triangle, as a set of numbers. *)
Definition times_in (P Q : point) (tri : Z * Z * Z) : list (R * R) :=
  let '(i, j, e) := tri in
  [(IZR e * (fst Q - fst P), IZR e * (fst P - IZR i));
   (IZR e * (snd Q - snd P), IZR e * (snd P - IZR j));
   (- (IZR e * (fst Q - fst P)) - IZR e * (snd Q - snd P),
    1 - IZR e * (fst P - IZR i) - IZR e * (snd P - IZR j))].

Lemma times_in_weights : forall P Q i j e t, (e = 1 \/ e = -1)%Z ->
  let a := IZR e * (fst (along P Q t) - IZR i) in let b := IZR e * (snd (along P Q t) - IZR j) in
  (within (times_in P Q (i, j, e)) t <-> 0 <= a /\ 0 <= b /\ a + b <= 1) /\
  along P Q t = at_weights i j e a b.
Proof.
  intros [px py] [qx qy] i j e t He a b.
  assert (E : IZR e * IZR e = 1) by (rewrite <- mult_IZR; destruct He; subst; reflexivity).
  split; [split|].
  - intro W. assert (W1 := W _ (or_introl eq_refl)). assert (W2 := W _ (or_intror (or_introl eq_refl))).
    assert (W3 := W _ (or_intror (or_intror (or_introl eq_refl)))).
    unfold a, b, along. cbn [fst snd] in *. repeat split; nra.
  - intros (A & B & C) c Hc. unfold a, b, along in A, B, C. cbn [fst snd] in A, B, C.
    destruct Hc as [<-|[<-|[<-|[]]]]; cbn [fst snd]; nra.
  - unfold at_weights, a, b, along. cbn [fst snd]. f_equal.
    + replace (IZR e * (IZR e * (px + t * (qx - px) - IZR i)))
        with (IZR e * IZR e * (px + t * (qx - px) - IZR i)) by ring. rewrite E. ring.
    + replace (IZR e * (IZR e * (py + t * (qy - py) - IZR j)))
        with (IZR e * IZR e * (py + t * (qy - py) - IZR j)) by ring. rewrite E. ring.
Qed.

Lemma area_near : forall P, in_area m P -> dot2 (place_of side P) (place_of side P) <= / 100.
Proof.
  intros P H. destruct (cover P H) as (i & j & e & a & b & _ & T & A & B & C & ->).
  destruct (there_real i j e 0 T) as [N _]. rewrite place_square. apply Rle_trans with (2 := N).
  assert (S := side_pos). apply Rmult_le_compat_l; [nra|].
  apply triangle_square; try assumption. apply T.
Qed.

Lemma dot2_low : forall p q, dot2 p p <= / 100 -> dot2 q q <= / 100 -> 0 <= 1 + dot2 p q.
Proof.
  intros [a b] [c f] H1 H2. unfold dot2 in *. cbn [fst snd] in *.
  assert (X := Rle_0_sqr (a + c)). assert (Y := Rle_0_sqr (b + f)). unfold Rsqr in *. lra.
Qed.

(** Accepted: between all points of the area and for every output, the probabilities differ by at most
    e^(rate d), d the distance on the sphere. *)
Theorem everywhere_private : forall y f, interpolates y f -> forall P Q, in_area m P -> in_area m Q ->
  f P <= exp (rate * true_distance P Q) * f Q.
Proof.
  intros y f F P Q HP HQ. destruct mesh_facts as (_ & _ & R0 & D0 & _ & _).
  assert (Rate : 0 <= rate).
  { apply Rmult_le_pos; [apply IZR_le, R0 | left; apply Rinv_0_lt_compat, IZR_lt, D0]. }
  assert (Rad : 0 < radius_km) by (unfold radius_km; lra).
  set (eps := rate * radius_km). assert (Eps : 0 <= eps) by (apply Rmult_le_pos; lra).
  assert (Seg : forall t, 0 <= t <= 1 -> in_area m (along P Q t)) by (intros; apply area_convex; assumption).
  set (step := fun s t => f (along P Q s)
    <= exp (eps * angle_between (place_of side (along P Q s)) (place_of side (along P Q t)))
       * f (along P Q t)).
  assert (C : step 0 1).
  { apply (chain step (length (map (times_in P Q) (filter (fun tri => let '(i, j, e) := tri in
             match row_at m i j, row_at m (i + e)%Z j, row_at m i (j + e)%Z with
             | Some a, Some b, Some c => ((e =? 1) || (e =? -1))%Z && complete_ok m i j e a b c
             | _, _, _ => false end) triangles)))
           (map (times_in P Q) (filter (fun tri => let '(i, j, e) := tri in
             match row_at m i j, row_at m (i + e)%Z j, row_at m i (j + e)%Z with
             | Some a, Some b, Some c => ((e =? 1) || (e =? -1))%Z && complete_ok m i j e a b c
             | _, _, _ => false end) triangles))); [reflexivity | lra | | |].
    - intros t Ht. destruct (cover _ (Seg t Ht)) as (i & j & e & a & b & I & T & A & B & AB & E).
      exists (times_in P Q (i, j, e)). destruct T as (He & ra & rb & rc & E1 & E2 & E3 & Ok). split.
      + apply in_map, filter_In. split; [exact I|]. rewrite E1, E2, E3, Ok.
        destruct He as [-> | ->]; reflexivity.
      + apply (times_in_weights P Q i j e t He).
        assert (S : IZR e * IZR e = 1) by (rewrite <- mult_IZR; destruct He; subst; reflexivity).
        rewrite E. unfold at_weights. cbn [fst snd].
        replace (IZR e * (IZR i + IZR e * a - IZR i)) with (IZR e * IZR e * a) by ring.
        replace (IZR e * (IZR j + IZR e * b - IZR j)) with (IZR e * IZR e * b) by ring.
        rewrite S. lra.
    - intros s t u Hs _ _ _ Wt Wu. apply in_map_iff in Hs. destruct Hs as ([[i j] e] & <- & Hs).
      apply filter_In in Hs. destruct Hs as [_ Hs].
      assert (T : there i j e).
      { destruct (row_at m i j) as [ra|] eqn:E1; [|discriminate].
        destruct (row_at m (i + e) j) as [rb|] eqn:E2; [|discriminate].
        destruct (row_at m i (j + e)) as [rc|] eqn:E3; [|discriminate].
        apply andb_prop in Hs. destruct Hs as [Hs Ok]. apply orb_prop in Hs. split.
        - destruct Hs as [Hs|Hs]; apply Z.eqb_eq in Hs; auto.
        - exists ra, rb, rc. repeat split; assumption. }
      assert (He := proj1 T).
      destruct (times_in_weights P Q i j e t He) as [Ht Et]. destruct (times_in_weights P Q i j e u He) as [Hu Eu].
      apply Ht in Wt. apply Hu in Wu. destruct Wt as (A & B & AB). destruct Wu as (A' & B' & AB').
      unfold step. rewrite Et, Eu. rewrite !F by assumption.
      destruct (there_real i j e y T) as (_ & Z1 & Z2 & Z3 & Slow).
      apply triangle_step with (t := side * side * IZR (farthest i j e)); try assumption.
      + apply side_pos.
      + lra.
    - intros r s t H1 H2 H3 H4 S1 S2. unfold step in *.
      destruct (Req_dec r s) as [->|Ne]; [exact S2|].
      assert (Pos : 0 < t - r) by lra.
      assert (Between : place_of side (along P Q s)
        = along (place_of side (along P Q r)) (place_of side (along P Q t)) ((s - r) / (t - r))).
      { rewrite <- place_along. f_equal. destruct P, Q. unfold along. cbn [fst snd]. f_equal; field; lra. }
      assert (Nr := area_near _ (Seg r ltac:(lra))). assert (Ns := area_near _ (Seg s ltac:(lra))).
      assert (Nt := area_near _ (Seg t ltac:(lra))).
      assert (Add := angles_add (place_of side (along P Q r)) (place_of side (along P Q t)) ((s - r) / (t - r))).
      cbv zeta in Add. rewrite <- Between in Add. rewrite <- Add.
      + rewrite Rmult_plus_distr_l, exp_plus, Rmult_assoc. apply Rle_trans with (1 := S1).
        apply Rmult_le_compat_l; [left; apply exp_pos | exact S2].
      + split; [apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat, Pos]|].
        apply Rmult_le_reg_r with (t - r); [exact Pos|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
      + apply dot2_low; assumption.
      + apply dot2_low; assumption. }
  unfold step in C.
  assert (E0 : along P Q 0 = P) by (destruct P; unfold along; cbn [fst snd]; f_equal; ring).
  assert (E1 : along P Q 1 = Q) by (destruct P, Q; unfold along; cbn [fst snd]; f_equal; ring).
  rewrite E0, E1 in C. unfold true_distance, eps in *. rewrite <- Rmult_assoc. exact C.
Qed.

End Area.
