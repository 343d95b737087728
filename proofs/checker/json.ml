(* JSON without NaN, infinities and names that are there twice. Numbers and strings keep the text that
   they have in the file, so that the certificate's sum can be taken over them. *)
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
          wrong "a name is twice in the certificate";
        List.iter (fun (_, v) -> unique v) items
    | List l -> List.iter unique l
    | _ -> ()
  in
  unique result;
  result

(* Sorted by name, without spaces. *)
let rec canonical = function
  | Word w | Number w | Text w -> w
  | List l -> "[" ^ String.concat "," (List.map canonical l) ^ "]"
  | Object items ->
      let item (name, v) = "\"" ^ name ^ "\":" ^ canonical v in
      "{" ^ String.concat "," (List.map item (List.sort compare items)) ^ "}"

(* Whether no number has an exponent that it does not need. *)
let rec plain = function
  | Number n ->
      String.lowercase_ascii n = n
      && (not (String.contains n 'e')
         || let size = Float.abs (float_of_string n) in
            size < 1e-4 || size >= 1e16)
  | List l -> List.for_all plain l
  | Object items -> List.for_all (fun (_, v) -> plain v) items
  | Word _ | Text _ -> true

let get name = function
  | Object items -> (
      match List.assoc_opt name items with
      | Some v -> v
      | None -> wrong ("the certificate lacks " ^ name))
  | _ -> wrong ("no object with " ^ name)

let has name = function Object items -> List.mem_assoc name items | _ -> false

let text = function
  | Text quoted ->
      if String.contains quoted '\\' then wrong "an escape where a plain text is due";
      String.sub quoted 1 (String.length quoted - 2)
  | _ -> wrong "a text is due"

let whole v =
  match v with
  | Number n when String.length n <= 15 && not (String.exists (fun c -> c = '.' || c = 'e' || c = 'E') n) ->
      int_of_string n
  | _ -> wrong "a whole number is due"

let number = function
  | Number n ->
      let f = float_of_string n in
      if Float.is_finite f then f else wrong "a finite number is due"
  | _ -> wrong "a number is due"
