(** A table as it lies in a file: epsilon, a space, the floor of every column, as a list and by its
    number, and records in tiles.
    A record is a point of the space (Distance.v) and its row: the entries above the floor, each with
    its column, columns ascending.  A dense table has the floors 0 and all its entries. *)

From Coq Require Import ZArith Reals Lra Lia List Bool.
From Panda Require Import Fixed Distance.
Import ListNotations.
Open Scope Z_scope.

Definition record : Type := list Z * list (Z * Z).

Record table := {
  epsilon_num : Z;
  epsilon_den : Z;
  metric : space;
  floors : list Z;
  floor_at : Z -> Z;
  tiles : list (list record)
}.

Definition total : Z := 2 ^ 62.

(** The entry of column i, whose floor is f, and what is left of the row. *)
Definition next (f i : Z) (row : list (Z * Z)) : Z * list (Z * Z) :=
  match row with
  | (j, w) :: rest => if j =? i then (w, rest) else (f, row)
  | [] => (f, row)
  end.

(** The row in full, from column i on. *)
Fixpoint decode (fs : list Z) (i : Z) (row : list (Z * Z)) : list Z :=
  match fs with
  | [] => []
  | f :: fs => let (w, rest) := next f i row in w :: decode fs (i + 1) rest
  end.

(** Every entry of the row has found its column. *)
Fixpoint used_up (fs : list Z) (i : Z) (row : list (Z * Z)) : bool :=
  match fs with
  | [] => match row with [] => true | _ => false end
  | f :: fs => used_up fs (i + 1) (snd (next f i row))
  end.

Definition rows (t : table) : list record := concat (tiles t).
Definition records (t : table) : nat := length (rows t).
Definition row_of (t : table) (x : nat) : record := nth x (rows t) ([], []).

(** The weights of record x, W x y, and the true distance of two records. *)
Definition weights (t : table) (x : nat) : list Z := decode (floors t) 0 (snd (row_of t x)).
Definition W (t : table) (x y : nat) : Z := nth y (weights t x) 0.
Definition d (t : table) (x x' : nat) : R := dist (metric t) (fst (row_of t x)) (fst (row_of t x')).
Definition epsilon (t : table) : R := (IZR (epsilon_num t) / IZR (epsilon_den t))%R.

(** What is promised of a table: epsilon-metric differential privacy, for all pairs and outputs. *)
Definition private (t : table) : Prop :=
  forall x x' y : nat, (x < records t)%nat -> (x' < records t)%nat ->
  (IZR (W t x y) <= exp (epsilon t * d t x x') * IZR (W t x' y))%R.

Definition sum (l : list Z) : Z := fold_right Z.add 0 l.

(** And of its rows: weights that are not negative and sum to 2^62. *)
Definition stochastic (t : table) : Prop :=
  forall x : nat, (x < records t)%nat ->
  sum (weights t x) = total /\ (forall w, In w (weights t x) -> 0 <= w).

Lemma decode_length : forall fs i row, length (decode fs i row) = length fs.
Proof.
  induction fs as [|f fs IH]; intros i row; simpl; [reflexivity|].
  destruct (next f i row). simpl. f_equal. apply IH.
Qed.
