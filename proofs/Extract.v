(** The checkers as an OCaml program.  Whole numbers become Zarith's (checker/big.ml), on whose
    arithmetic the program relies as on the compiler; all else stays as it is proved. *)

From Coq Require Extraction ExtrOcamlBasic.
From Coq Require Import ZArith.
From Panda Require Import Fixed Distance Nats Table Check Given BoundFile MeshFile Edges.

Extract Inductive positive => "Big.t" [ "Big.twice_and_one" "Big.twice" "Big.one" ]
  "Big.match_positive".
Extract Inductive Z => "Big.t" [ "Big.zero" "" "Big.neg" ] "Big.match_whole".
Extract Constant Z.add => "Big.add".
Extract Constant Z.sub => "Big.sub".
Extract Constant Z.mul => "Big.mul".
Extract Constant Z.opp => "Big.neg".
Extract Constant Z.abs => "Big.abs".
Extract Constant Z.min => "Big.min".
Extract Constant Z.max => "Big.max".
Extract Constant Z.eqb => "Big.equal".
Extract Constant Z.leb => "Big.leq".
Extract Constant Z.ltb => "Big.lt".
Extract Constant Z.compare => "(Big.compare Lt Eq Gt)".
Extract Constant Z.div => "Big.div".
Extract Constant Z.sqrt => "Big.sqrt".
Extract Constant Z.shiftr => "Big.shift_right".

Extraction "checked.ml" accept bound_ok mesh_ok complete_ok edges_ok nats_low nats_high.
