(* Coq's whole numbers as Zarith's: the functions that Extract.v names. Division rounds down and is 0
   by 0, the root of a negative number is 0, as in Coq. *)
type t = Z.t

let zero = Z.zero
let one = Z.one
let twice p = Z.shift_left p 1
let twice_and_one p = Z.succ (Z.shift_left p 1)
let add = Z.add
let sub = Z.sub
let mul = Z.mul
let neg = Z.neg
let abs = Z.abs
let min a b = if Z.leq a b then a else b
let max a b = if Z.leq a b then b else a
let equal = Z.equal
let leq = Z.leq
let lt = Z.lt
let div a b = if Z.sign b = 0 then Z.zero else Z.fdiv a b
let sqrt a = if Z.sign a <= 0 then Z.zero else Z.sqrt a
let shift_right a n = Z.shift_right a (Z.to_int n)

let compare less same more a b =
  let c = Z.compare a b in
  if c < 0 then less else if c = 0 then same else more

let match_positive odd even unit p =
  if Z.leq p Z.one then unit ()
  else if Z.testbit p 0 then odd (Z.shift_right p 1)
  else even (Z.shift_right p 1)

let match_whole zero positive negative z =
  let s = Z.sign z in
  if s = 0 then zero () else if s > 0 then positive z else negative (Z.neg z)
