(* SHA-256 (FIPS 180-4) of a string, in hexadecimal. *)
let mask = 0xffffffff

(* The first 32 bits of the fractional parts of roots of the primes. *)
let primes =
  let rec next found n =
    if List.length found = 64 then List.rev found
    else if List.exists (fun p -> n mod p = 0) found then next found (n + 1)
    else next (n :: found) (n + 1)
  in
  next [] 2

let low whole = Z.to_int (Z.logand whole (Z.of_int mask))
let constants = Array.of_list (List.map (fun p -> low (Z.root (Z.shift_left (Z.of_int p) 96) 3)) primes)
let start = Array.init 8 (fun i -> low (Z.sqrt (Z.shift_left (Z.of_int (List.nth primes i)) 64)))
let rotate x n = ((x lsr n) lor (x lsl (32 - n))) land mask

let block state data at =
  let w = Array.make 64 0 in
  for i = 0 to 15 do
    w.(i) <- Int32.to_int (Bytes.get_int32_be data (at + (4 * i))) land mask
  done;
  for i = 16 to 63 do
    let a = w.(i - 15) and b = w.(i - 2) in
    let s0 = rotate a 7 lxor rotate a 18 lxor (a lsr 3) in
    let s1 = rotate b 17 lxor rotate b 19 lxor (b lsr 10) in
    w.(i) <- (w.(i - 16) + s0 + w.(i - 7) + s1) land mask
  done;
  let v = Array.copy state in
  for i = 0 to 63 do
    let e = v.(4) and a = v.(0) in
    let s1 = rotate e 6 lxor rotate e 11 lxor rotate e 25 in
    let choice = e land v.(5) lxor (lnot e land mask land v.(6)) in
    let t1 = v.(7) + s1 + choice + constants.(i) + w.(i) in
    let s0 = rotate a 2 lxor rotate a 13 lxor rotate a 22 in
    let most = a land v.(1) lxor (a land v.(2)) lxor (v.(1) land v.(2)) in
    Array.blit v 0 v 1 7;
    v.(4) <- (v.(4) + t1) land mask;
    v.(0) <- (t1 + s0 + most) land mask
  done;
  Array.iteri (fun i x -> state.(i) <- (state.(i) + x) land mask) v

let hex text =
  let length = String.length text in
  let padded = (length + 72) / 64 * 64 in
  let data = Bytes.make padded '\000' in
  Bytes.blit_string text 0 data 0 length;
  Bytes.set data length '\128';
  Bytes.set_int64_be data (padded - 8) (Int64.of_int (8 * length));
  let state = Array.copy start in
  for i = 0 to (padded / 64) - 1 do
    block state data (64 * i)
  done;
  String.concat "" (Array.to_list (Array.map (Printf.sprintf "%08x") state))
