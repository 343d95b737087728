(* JSON without NaN, infinities and names that are there twice. Numbers and strings keep the text that
   they have in the file. *)
type t =
  | Word of string (* null, true, false *)
  | Number of string
  | Text of string (* with its quotes and escapes *)
  | List of t list
  | Object of (string * t) list

exception Wrong of string

let wrong reason = raise (Wrong reason)

let parse text =
  let size = String.length text in
  let at = ref 0 in
  let peek () = if !at < size then text.[!at] else '\000' in
  let rec space () =
    match peek () with
    | ' ' | '\t' | '\n' | '\r' ->
        incr at;
        space ()
    | _ -> ()
  in
  let expect c = if peek () = c && !at < size then incr at else wrong "not JSON" in
  let quoted () =
    let start = !at in
    expect '"';
    while !at < size && text.[!at] <> '"' do
      if text.[!at] < ' ' then wrong "a control character in a string";
      at := !at + if text.[!at] = '\\' then 2 else 1
    done;
    expect '"';
    String.sub text start (!at - start)
  in
  let number () =
    let start = !at in
    let digits () =
      let first = !at in
      while match peek () with '0' .. '9' -> true | _ -> false do incr at done;
      if !at = first then wrong "not a number"
    in
    if peek () = '-' then incr at;
    if peek () = '0' then incr at else digits ();
    if peek () = '.' then (incr at; digits ());
    if peek () = 'e' || peek () = 'E' then (
      incr at;
      if peek () = '+' || peek () = '-' then incr at;
      digits ());
    String.sub text start (!at - start)
  in
  let rec value depth =
    if depth > 100 then wrong "JSON too deep";
    space ();
    let result =
      match peek () with
      | '{' ->
          incr at;
          Object (items depth '}' (fun () ->
            space ();
            let name = quoted () in
            space ();
            expect ':';
            (String.sub name 1 (String.length name - 2), value (depth + 1))))
      | '[' ->
          incr at;
          List (items depth ']' (fun () -> value (depth + 1)))
      | '"' -> Text (quoted ())
      | '-' | '0' .. '9' -> Number (number ())
      | _ -> Word (word [ "null"; "true"; "false" ])
    in
    space ();
    result
  and items : 'a. int -> char -> (unit -> 'a) -> 'a list = fun _ close one ->
    space ();
    if peek () = close then (incr at; [])
    else
      let rec go acc =
        let acc = one () :: acc in
        space ();
        if peek () = ',' then (incr at; go acc) else (expect close; List.rev acc)
      in
      go []
  and word = function
    | [] -> wrong "not JSON"
    | w :: rest ->
        let n = String.length w in
        if !at + n <= size && String.sub text !at n = w then (at := !at + n; w) else word rest
  in
  let result = value 0 in
  if !at <> size then wrong "something follows the JSON";
  let rec unique = function
    | Object items ->
        let names = List.map fst items in
        if List.length (List.sort_uniq compare names) <> List.length names then
          wrong "a name is twice in the header";
        List.iter (fun (_, v) -> unique v) items
    | List l -> List.iter unique l
    | _ -> ()
  in
  unique result;
  result

(* The characters of a text, which must have the one form that Python's json gives it: printable ASCII as
   it is, everything else escaped, in small letters. *)
let characters raw =
  let size = String.length raw in
  let hex at =
    let digit c =
      match c with '0' .. '9' -> Char.code c - 48 | 'a' .. 'f' -> Char.code c - 87 | _ -> wrong "not canonical"
    in
    if at + 4 > size then wrong "not canonical"
    else List.fold_left (fun n k -> (16 * n) + digit raw.[at + k]) 0 [ 0; 1; 2; 3 ]
  in
  let short = [ ('"', 34); ('\\', 92); ('n', 10); ('r', 13); ('t', 9); ('b', 8); ('f', 12) ] in
  let rec go at =
    if at >= size then []
    else if raw.[at] <> '\\' then
      if raw.[at] < ' ' || raw.[at] > '~' then wrong "not canonical" else Char.code raw.[at] :: go (at + 1)
    else if at + 1 < size && List.mem_assoc raw.[at + 1] short then List.assoc raw.[at + 1] short :: go (at + 2)
    else if at + 1 < size && raw.[at + 1] = 'u' then (
      let code = hex (at + 2) in
      if (code >= 32 && code < 127) || List.mem code [ 8; 9; 10; 12; 13 ] then wrong "not canonical";
      match go (at + 6) with
      | low :: rest when code land 0xfc00 = 0xd800 && low land 0x1ffc00 = 0xdc00 ->
          (0x10000 + ((code land 0x3ff) lsl 10) + (low land 0x3ff)) :: rest
      | rest -> code :: rest)
    else wrong "not canonical"
  in
  go 0

(* A float as Python writes it: the fewest digits that give it back. *)
let shortest f =
  let size = Float.abs f in
  let again s = float_of_string s = size in
  let rec find n =
    let s = Printf.sprintf "%.*e" n size in
    let cut = String.index s 'e' in
    let up =
      (* Below a power of two floats are nearer to each other, so that the next number may be it. *)
      let digits = String.concat "" (String.split_on_char '.' (String.sub s 0 cut)) in
      let next = Z.to_string (Z.succ (Z.of_string digits)) in
      let point = if n = 0 then next else String.sub next 0 1 ^ "." ^ String.sub next 1 (String.length next - 1) in
      point ^ String.sub s cut (String.length s - cut)
    in
    if again s then s else if again up then up else find (n + 1)
  in
  let s = find 0 in
  let cut = String.index s 'e' in
  let digits = String.concat "" (String.split_on_char '.' (String.sub s 0 cut)) in
  let exponent = int_of_string (let e = String.sub s (cut + 1) (String.length s - cut - 1) in
                                if e.[0] = '+' then String.sub e 1 (String.length e - 1) else e) in
  let count = String.length digits in
  let tail from = if count > from then String.sub digits from (count - from) else "0" in
  let body =
    if exponent >= 16 || exponent < -4 then
      (if count = 1 then digits else String.sub digits 0 1 ^ "." ^ tail 1)
      ^ Printf.sprintf "e%c%02d" (if exponent < 0 then '-' else '+') (abs exponent)
    else if exponent < 0 then "0." ^ String.make (-exponent - 1) '0' ^ digits
    else if count > exponent + 1 then String.sub digits 0 (exponent + 1) ^ "." ^ tail (exponent + 1)
    else digits ^ String.make (exponent + 1 - count) '0' ^ ".0"
  in
  if Float.sign_bit f then "-" ^ body else body

let is_whole n = not (String.exists (fun c -> c = '.' || c = 'e' || c = 'E') n)

(* Names sorted, no blanks, numbers and texts in their one form; whole numbers of up to 4300 digits. *)
let rec canonical = function
  | Word w -> w
  | Number n when is_whole n -> if n = "-0" || String.length n > 4300 + Bool.to_int (n.[0] = '-') then "" else n
  | Number n -> let f = float_of_string n in if Float.is_finite f then shortest f else ""
  | Text t -> ignore (characters (String.sub t 1 (String.length t - 2))); t
  | List l -> "[" ^ String.concat "," (List.map canonical l) ^ "]"
  | Object items ->
      let items = List.map (fun (name, v) -> (characters name, name, v)) items in
      let item (_, name, v) = "\"" ^ name ^ "\":" ^ canonical v in
      let by_name (a, _, _) (b, _, _) = compare a b in
      "{" ^ String.concat "," (List.map item (List.sort by_name items)) ^ "}"

let get name = function
  | Object items -> (
      match List.assoc_opt name items with
      | Some v -> v
      | None -> wrong ("the header lacks " ^ name))
  | _ -> wrong ("no object with " ^ name)

let has name = function Object items -> List.mem_assoc name items | _ -> false

let text = function
  | Text quoted ->
      (* In the canonical form nothing plain is escaped, so two texts are equal where these are. *)
      String.sub quoted 1 (String.length quoted - 2)
  | _ -> wrong "a text is due"

let whole v =
  match v with
  | Number n when String.length n <= 15 && is_whole n -> int_of_string n
  | _ -> wrong "a whole number is due"

let number = function
  | Number n ->
      let f = float_of_string n in
      if Float.is_finite f then f else wrong "a finite number is due"
  | _ -> wrong "a number is due"
