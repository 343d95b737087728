(** The checkers as an OCaml program.  Whole numbers become Zarith's, on whose arithmetic the program
    relies as on the compiler; natural numbers, lists and all else stay as they are proved. *)

From Coq Require Extraction ExtrOcamlBasic.
From Coq Require Import ZArith.
From Panda Require Import Fixed Distance Table Check Given BoundFile.

Extraction Blacklist Z List.

Extract Inductive positive => "Z.t"
  [ "(fun p -> Z.succ (Z.shift_left p 1))" "(fun p -> Z.shift_left p 1)" "Z.one" ]
  "(fun odd even unit p -> if Z.leq p Z.one then unit () else if Z.testbit p 0 then odd (Z.shift_right p 1) else even (Z.shift_right p 1))".
Extract Inductive Z => "Z.t" [ "Z.zero" "(fun p -> p)" "Z.neg" ]
  "(fun zero pos neg z -> let s = Z.sign z in if s = 0 then zero () else if s > 0 then pos z else neg (Z.neg z))".

Extract Constant Z.add => "Z.add".
Extract Constant Z.sub => "Z.sub".
Extract Constant Z.mul => "Z.mul".
Extract Constant Z.opp => "Z.neg".
Extract Constant Z.abs => "Z.abs".
Extract Constant Z.min => "Z.min".
Extract Constant Z.max => "Z.max".
Extract Constant Z.eqb => "Z.equal".
Extract Constant Z.leb => "Z.leq".
Extract Constant Z.ltb => "Z.lt".
Extract Constant Z.compare =>
  "(fun a b -> let c = Z.compare a b in if c = 0 then Eq else if c < 0 then Lt else Gt)".
Extract Constant Z.div => "(fun a b -> if Z.sign b = 0 then Z.zero else Z.fdiv a b)".
Extract Constant Z.sqrt => "(fun a -> if Z.sign a <= 0 then Z.zero else Z.sqrt a)".
Extract Constant Z.shiftr => "(fun a n -> Z.shift_right a (Z.to_int n))".

Extraction "checker.ml" accept bound_ok.
