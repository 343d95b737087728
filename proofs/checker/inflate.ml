(* Raw deflate (RFC 1951) and the zlib format around it (RFC 1950). *)
exception Wrong of string

let wrong reason = raise (Wrong reason)

type reader = { data : string; mutable at : int; mutable held : int; mutable bits : int }

let rec take r n =
  if r.bits >= n then (
    let value = r.held land ((1 lsl n) - 1) in
    r.held <- r.held lsr n;
    r.bits <- r.bits - n;
    value)
  else if r.at >= String.length r.data then wrong "deflated data end early"
  else (
    r.held <- r.held lor (Char.code r.data.[r.at] lsl r.bits);
    r.at <- r.at + 1;
    r.bits <- r.bits + 8;
    take r n)

(* A code as how many there are of each length, and its symbols in order. As in zlib no code may
   have too many words, and one that has too few is either empty or a `lone` word of one bit. *)
let code ?(lone = true) lengths =
  let counts = Array.make 16 0 in
  Array.iter (fun l -> counts.(l) <- counts.(l) + 1) lengths;
  counts.(0) <- 0;
  let left = ref 1 and longest = ref 0 in
  for l = 1 to 15 do
    left := (2 * !left) - counts.(l);
    if !left < 0 then wrong "a code with too many words";
    if counts.(l) > 0 then longest := l
  done;
  if !left > 0 && !longest > if lone then 1 else 0 then wrong "a code with too few words";
  let offsets = Array.make 16 0 in
  for l = 1 to 14 do
    offsets.(l + 1) <- offsets.(l) + counts.(l)
  done;
  let symbols = Array.make (Array.length lengths) 0 in
  Array.iteri
    (fun symbol l ->
      if l > 0 then (
        symbols.(offsets.(l)) <- symbol;
        offsets.(l) <- offsets.(l) + 1))
    lengths;
  (counts, symbols)

let symbol r (counts, symbols) =
  let rec go length value first index =
    if length > 15 then wrong "a code that does not exist"
    else
      let value = value lor take r 1 in
      let here = counts.(length) in
      if value - first < here then symbols.(index + value - first)
      else go (length + 1) (value lsl 1) ((first + here) lsl 1) (index + here)
  in
  go 1 0 0 0

let length_base =
  [| 3; 4; 5; 6; 7; 8; 9; 10; 11; 13; 15; 17; 19; 23; 27; 31; 35; 43; 51; 59; 67; 83; 99; 115; 131; 163; 195; 227; 258 |]

let length_extra =
  [| 0; 0; 0; 0; 0; 0; 0; 0; 1; 1; 1; 1; 2; 2; 2; 2; 3; 3; 3; 3; 4; 4; 4; 4; 5; 5; 5; 5; 0 |]

let distance_base =
  [| 1; 2; 3; 4; 5; 7; 9; 13; 17; 25; 33; 49; 65; 97; 129; 193; 257; 385; 513; 769; 1025; 1537; 2049; 3073; 4097; 6145; 8193; 12289; 16385; 24577 |]

let distance_extra =
  [| 0; 0; 0; 0; 1; 1; 2; 2; 3; 3; 4; 4; 5; 5; 6; 6; 7; 7; 8; 8; 9; 9; 10; 10; 11; 11; 12; 12; 13; 13 |]

let order = [| 16; 17; 18; 0; 8; 7; 9; 6; 10; 5; 11; 4; 12; 3; 13; 2; 14; 1; 15 |]

let fixed =
  ( code (Array.init 288 (fun i -> if i < 144 then 8 else if i < 256 then 9 else if i < 280 then 7 else 8)),
    code (Array.make 32 5) )

let dynamic r =
  let literals = take r 5 + 257 in
  let distances = take r 5 + 1 in
  if literals > 286 || distances > 30 then wrong "codes for too much";
  let used = take r 4 + 4 in
  let first = Array.make 19 0 in
  for i = 0 to used - 1 do
    first.(order.(i)) <- take r 3
  done;
  let first = code ~lone:false first in
  let lengths = Array.make (literals + distances) 0 in
  let at = ref 0 in
  let repeat value times =
    if !at + times > Array.length lengths then wrong "too many code lengths";
    Array.fill lengths !at times value;
    at := !at + times
  in
  while !at < Array.length lengths do
    match symbol r first with
    | 16 ->
        if !at = 0 then wrong "nothing to repeat";
        let value = lengths.(!at - 1) in
        repeat value (3 + take r 2)
    | 17 -> repeat 0 (3 + take r 3)
    | 18 -> repeat 0 (11 + take r 7)
    | value -> repeat value 1
  done;
  if lengths.(256) = 0 then wrong "a block without an end";
  (code (Array.sub lengths 0 literals), code (Array.sub lengths literals distances))

(* At most `most` bytes; the place in the data after the last block. *)
let raw data at most =
  let r = { data; at; held = 0; bits = 0 } in
  let out = Buffer.create (min most 65536) in
  let room n = if Buffer.length out + n > most then wrong "it unpacks to too much" in
  let compressed (literals, distances) =
    let rec go () =
      let s = symbol r literals in
      if s < 256 then (
        room 1;
        Buffer.add_char out (Char.chr s);
        go ())
      else if s > 256 then (
        if s > 285 then wrong "a length that does not exist";
        let length = length_base.(s - 257) + take r length_extra.(s - 257) in
        let d = symbol r distances in
        if d > 29 then wrong "a distance that does not exist";
        let back = distance_base.(d) + take r distance_extra.(d) in
        if back > Buffer.length out then wrong "a distance beyond the start";
        room length;
        for _ = 1 to length do
          Buffer.add_char out (Buffer.nth out (Buffer.length out - back))
        done;
        go ())
    in
    go ()
  in
  let rec blocks () =
    let last = take r 1 in
    (match take r 2 with
    | 0 ->
        r.held <- 0;
        r.bits <- 0;
        if r.at + 4 > String.length data then wrong "deflated data end early";
        let length = String.get_uint16_le data r.at in
        if length lxor String.get_uint16_le data (r.at + 2) <> 0xffff then wrong "a damaged block";
        r.at <- r.at + 4;
        if r.at + length > String.length data then wrong "deflated data end early";
        room length;
        Buffer.add_substring out data r.at length;
        r.at <- r.at + length
    | 1 -> compressed fixed
    | 2 -> compressed (dynamic r)
    | _ -> wrong "a block of no known kind");
    if last = 0 then blocks ()
  in
  blocks ();
  (Buffer.contents out, r.at)

let adler text =
  let a = ref 1 and b = ref 0 in
  String.iter
    (fun c ->
      a := (!a + Char.code c) mod 65521;
      b := (!b + !a) mod 65521)
    text;
  (!b lsl 16) lor !a

let zlib data most =
  let size = String.length data in
  if size < 6 then wrong "no zlib data";
  let head = String.get_uint16_be data 0 in
  if head land 0x0f00 <> 0x0800 || head mod 31 <> 0 || head land 0x20 <> 0 then wrong "no zlib data";
  let text, at = raw data 2 most in
  if at + 4 <> size then wrong "something follows the deflated data";
  if Int32.to_int (String.get_int32_be data at) land 0xffffffff <> adler text then wrong "damaged zlib data";
  text

let table =
  Array.init 256 (fun n ->
      let c = ref n in
      for _ = 1 to 8 do
        c := if !c land 1 = 1 then 0xedb88320 lxor (!c lsr 1) else !c lsr 1
      done;
      !c)

let crc32 text =
  let c = ref 0xffffffff in
  String.iter (fun ch -> c := table.((!c lxor Char.code ch) land 0xff) lxor (!c lsr 8)) text;
  !c lxor 0xffffffff
