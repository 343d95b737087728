(* A .pmdp archive or a .pmdc compact table, its sums checked, as a certificate and arrays. The formats
   are in docs/format.md. *)
exception Unreadable of string

let need condition reason = if not condition then raise (Unreadable reason)
let plain_limit size = (1 lsl 28) + (128 * size)

type values = Whole of int64 array | Real of float array

type table = {
  claims : Json.t;
  kind : string;
  unit : string;
  records : int;
  outputs : int;
  reports : string; (* what outputs are: records, places or labels *)
  width : int; (* of a vector *)
  arrays : (string * values) list;
  floors : Z.t list; (* none in an archive *)
}

let metric_arrays = function
  | "haversine" -> [ "lat"; "lon" ]
  | "matrix" -> [ "distances" ]
  | "euclidean" | "angular" -> [ "vectors" ]
  | _ -> raise (Unreadable "distances of an unknown kind")

let is_whole name = List.mem name [ "outputs"; "nodes"; "weights"; "bound_pairs" ]

let values name raw =
  let n = String.length raw / 8 in
  if is_whole name then Whole (Array.init n (fun i -> String.get_int64_le raw (8 * i)))
  else Real (Array.init n (fun i -> Int64.float_of_bits (String.get_int64_le raw (8 * i))))

let bytes n f =
  let b = Bytes.create (8 * n) in
  for i = 0 to n - 1 do
    Bytes.set_int64_le b (8 * i) (f i)
  done;
  Bytes.unsafe_to_string b

let shape_text = function
  | [ a ] -> Printf.sprintf "(%d,)" a
  | shape -> "(" ^ String.concat ", " (List.map string_of_int shape) ^ ")"

let product = List.fold_left ( * ) 1
let same_names a b = List.sort compare a = List.sort compare b

(* ---- archives *)

type member = { name : string; packed : string; size : int; crc : int; deflated : bool }

let unsigned data at = Int32.to_int (String.get_int32_le data at) land 0xffffffff

let members data =
  let size = String.length data in
  need (size > 81 + 22) "the file is too short";
  let body = String.sub data 0 (size - 81) in
  let seal = "panda-mdp sha256 " ^ Sha256.hex body in
  need (String.sub data (size - 81) 81 = seal) "foreign, damaged or truncated: the seal does not fit";
  let ending = size - 81 - 22 in
  need (String.sub data ending 4 = "PK\005\006") "no end of the archive";
  let count = String.get_uint16_le data (ending + 10) in
  let at = ref (unsigned data (ending + 16)) in
  let total = ref 0 in
  List.init count (fun _ ->
      need (!at + 46 <= ending && String.sub data !at 4 = "PK\001\002") "a damaged directory";
      let flags = String.get_uint16_le data (!at + 8) and how = String.get_uint16_le data (!at + 10) in
      let crc = unsigned data (!at + 16) and packed = unsigned data (!at + 20) in
      let plain = unsigned data (!at + 24) in
      let name_size = String.get_uint16_le data (!at + 28) in
      let rest = String.get_uint16_le data (!at + 30) + String.get_uint16_le data (!at + 32) in
      let start = unsigned data (!at + 42) in
      need (!at + 46 + name_size + rest <= ending) "a damaged directory";
      let name = String.sub data (!at + 46) name_size in
      need (flags land 1 = 0 && (how = 0 || how = 8)) "a member is not deflated";
      at := !at + 46 + name_size + rest;
      total := !total + plain;
      need (!total <= plain_limit size) "it would unpack to too much";
      need (start + 30 <= ending && String.sub data start 4 = "PK\003\004") "a damaged member";
      let local = String.get_uint16_le data (start + 26) in
      let from = start + 30 + local + String.get_uint16_le data (start + 28) in
      need (from + packed <= ending && String.sub data (start + 30) local = name) "a damaged member";
      { name; packed = String.sub data from packed; size = plain; crc; deflated = how = 8 })

let unpack m =
  let text = if m.deflated then fst (Inflate.raw m.packed 0 m.size) else m.packed in
  need (String.length text = m.size && Inflate.crc32 text = m.crc) (m.name ^ " is damaged");
  text

(* The bytes of an array: a header that says exactly what is due, then the numbers. *)
let npy name shape text =
  let length = 8 * product shape in
  let head = String.length text - length in
  need (head > 10 && head <= 256) (name ^ ": another size");
  let due =
    Printf.sprintf "{'descr': '%s', 'fortran_order': False, 'shape': %s, }"
      (if is_whole name then "<i8" else "<f8") (shape_text shape)
  in
  need (String.sub text 0 8 = "\147NUMPY\001\000") (name ^ " is no array");
  need (String.get_uint16_le text 8 = head - 10) (name ^ " is no array");
  need (String.trim (String.sub text 10 (head - 10)) = due) (name ^ " has another type or shape");
  String.sub text head length

(* ---- compact tables *)

let planes text count =
  need (text <> "") "a wrong section";
  let width = Char.code text.[0] in
  need (width <= 8 && String.length text = 1 + (width * count)) "a wrong section";
  Array.init count (fun i ->
      let folded = ref Z.zero in
      for k = width - 1 downto 0 do
        folded := Z.add (Z.shift_left !folded 8) (Z.of_int (Char.code text.[1 + (k * count) + i]))
      done;
      let half = Z.shift_right !folded 1 in
      if Z.testbit !folded 0 then Z.pred (Z.neg half) else half)

let running sums =
  let total = ref Z.zero in
  Array.map (fun v -> total := Z.add !total v; !total) sums

let sealed_sections data =
  let size = String.length data - 32 in
  need (size >= 22) "the file is too short";
  let raw = String.concat "" (List.init 32 (fun i -> Printf.sprintf "%02x" (Char.code data.[size + i]))) in
  need (Sha256.hex (String.sub data 0 size) = raw) "damaged or truncated";
  let at = ref (22 + unsigned data 18) in
  need (!at <= size) "the header is longer than the file";
  let claims = Json.parse (String.sub data 22 (!at - 22)) in
  let parts =
    match Json.get "sections" claims with
    | Json.Object items ->
        List.map
          (fun (name, length) ->
            let length = Json.whole length in
            need (length >= 0 && !at + length <= size) "a section is longer than the file";
            let part = String.sub data !at length in
            at := !at + length;
            (name, part))
          items
    | _ -> raise (Unreadable "no sections")
  in
  need (!at = size) "the sections are not as long as the header says";
  (claims, parts)

let total = Z.shift_left Z.one 62

let block text n floors =
  let m = Array.length floors in
  let tail = (4 * n) + (((n * m) + 7) / 8) in
  let text = Inflate.zlib text (tail + 1 + (8 * n * m)) in
  need (String.length text > tail) "a wrong block";
  let byte i = Char.code text.[i] in
  let parent i = byte i and rest i = String.get_uint16_le text ((2 * n) + (2 * i)) in
  let raised = Array.make_matrix n m false in
  for i = 0 to n - 1 do
    need (i = 0 || parent i < i) "a parent comes later";
    need (rest i < m) "the rest is in no column";
    for y = 0 to m - 1 do
      let bit = (y * n) + i in
      let flag = (byte ((4 * n) + (bit lsr 3)) lsr (7 - (bit land 7))) land 1 = 1 in
      raised.(i).(y) <- flag <> (i > 0 && raised.(parent i).(y))
    done
  done;
  let place = Array.make_matrix n m (-1) and stored = ref 0 in
  for y = 0 to m - 1 do
    for i = 0 to n - 1 do
      if raised.(i).(y) && y <> rest i then (
        place.(i).(y) <- !stored;
        incr stored)
    done
  done;
  let changes = planes (String.sub text tail (String.length text - tail)) !stored in
  let rows = Array.make n [||] in
  for i = 0 to n - 1 do
    let p = byte (n + i) in
    let near = if i = 0 then floors else rows.(parent i) in
    let row = Array.copy floors in
    for y = 0 to m - 1 do
      if place.(i).(y) >= 0 then (
        let down = max 0 (Z.numbits near.(y) - 1 - p) in
        let code =
          Z.add (Z.add (Z.shift_left (Z.of_int down) p) (Z.shift_right near.(y) down))
            changes.(place.(i).(y))
        in
        need (Z.sign code >= 0 && p <= 63 && Z.leq code (Z.shift_left (Z.of_int (63 - p)) p))
          "a weight is out of range";
        let up = max 0 (Z.to_int (Z.shift_right code p) - 1) in
        row.(y) <- Z.shift_left (Z.sub code (Z.shift_left (Z.of_int up) p)) up)
    done;
    row.(rest i) <- Z.zero;
    row.(rest i) <- Z.sub total (Array.fold_left Z.add Z.zero row);
    rows.(i) <- row
  done;
  rows

(* ---- both *)

let int64 z =
  need (Z.fits_int64 z) "a number beyond 64 bits";
  Z.to_int64 z

let read_compact data shapes names =
  let claims, parts = sealed_sections data in
  let k, m, names =
    match shapes claims "weights" with
    | [ k; m ] -> (k, m, List.filter (fun n -> n <> "weights") (names claims))
    | _ -> assert false
  in
  need (same_names ([ "order"; "floors"; "blocks" ] @ names) (List.map fst parts)) "missing or other sections";
  let plain = List.fold_left (fun s n -> s + (8 * product (shapes claims n))) (8 * k * m) names in
  need (m <= 65536 && plain <= plain_limit (String.length data)) "it would unpack to too much";
  let integers name count = running (planes (Inflate.zlib (List.assoc name parts) (1 + (8 * count))) count) in
  let order = Array.map (fun z -> Int64.to_int (int64 z)) (integers "order" k) in
  let place = Array.make k (-1) in
  Array.iteri
    (fun i x ->
      need (x >= 0 && x < k && place.(x) < 0) "the order does not name each record once";
      place.(x) <- i)
    order;
  let floors = integers "floors" m in
  let raw name =
    let count = product (shapes claims name) in
    let bits =
      if is_whole name then Array.map int64 (integers name count)
      else
        match Json.text (Json.get name (Json.get "arrays" claims)) with
        | "float64" ->
            let text = Inflate.zlib (List.assoc name parts) (8 * count) in
            need (String.length text = 8 * count) "a wrong section";
            Array.init count (fun i -> String.get_int64_le text (8 * i))
        | "degrees" ->
            Array.map (fun z -> Int64.bits_of_float (Int64.to_float (int64 z) /. 1e7)) (integers name count)
        | _ -> raise (Unreadable "an array in an unknown coding")
    in
    let at = if name = "lat" || name = "lon" then fun i -> bits.(place.(i)) else fun i -> bits.(i) in
    (name, bytes count at)
  in
  let ends = match Json.get "blocks" claims with
    | Json.List l -> List.map Json.whole l
    | _ -> raise (Unreadable "no blocks") in
  let blocks = List.assoc "blocks" parts in
  need (List.for_all (fun l -> l >= 0) ends && List.fold_left ( + ) 0 ends = String.length blocks
        && List.length ends = (k + 255) / 256) "the blocks do not fit their section";
  let at = ref 0 in
  let rows =
    Array.concat
      (List.mapi
         (fun b length ->
           let text = String.sub blocks !at length in
           at := !at + length;
           block text (min 256 (k - (256 * b))) floors)
         ends)
  in
  let weights = bytes (k * m) (fun i -> int64 rows.(place.(i / m)).(i mod m)) in
  (claims, ("weights", weights) :: List.map raw names, Array.to_list floors)

let read_archive data shapes names =
  let all = members data in
  let listed = List.map (fun m -> m.name) all in
  need (List.length (List.sort_uniq compare listed) = List.length listed) "a member is there twice";
  let member name =
    match List.find_opt (fun m -> m.name = name) all with
    | Some m -> unpack m
    | None -> raise (Unreadable ("no " ^ name))
  in
  let claims = Json.parse (member "certificate.json") in
  let names = names claims @ [ "prior"; "loss" ]
    @ if Json.has "bound_pairs" claims then [ "bound_pairs"; "bound_multipliers" ] else [] in
  let path name = "arrays/" ^ name ^ ".npy" in
  need (same_names ("certificate.json" :: List.map path names) listed) "missing or other members";
  let state = Buffer.create 65536 in
  (match claims with
  | Json.Object items ->
      Buffer.add_string state
        (Json.canonical (Json.Object (List.filter (fun (n, _) -> n <> "sha256") items)))
  | _ -> raise (Unreadable "the certificate is no object"));
  let raw =
    List.map
      (fun name ->
        let text = member (path name) in
        Buffer.add_string state (Printf.sprintf "\n%s %d\n" (path name) (String.length text));
        Buffer.add_string state text;
        (name, npy name (shapes claims name) text))
      (List.sort (fun a b -> compare (path a) (path b)) names)
  in
  need (Json.text (Json.get "sha256" claims) = Sha256.hex (Buffer.contents state))
    "the certificate's sum does not fit";
  (claims, raw, [])

let read data =
  let compact = String.length data > 18 && String.sub data 0 18 = "panda-mdp compact\n" in
  let field outer name claims = Json.get name (if outer = "" then claims else Json.get outer claims) in
  let whole least outer name claims =
    let n = Json.whole (field outer name claims) in
    need (n >= least && n < 1 lsl 31) (name ^ " is out of range");
    n
  in
  let kind claims = Json.text (field "domain" "kind" claims) in
  let width claims = if metric_arrays (kind claims) = [ "vectors" ] then whole 1 "domain" "dimensions" claims else 0 in
  let shapes claims name =
    let k = whole 2 "domain" "records" claims and m = whole 1 "" "outputs" claims in
    match name with
    | "lat" | "lon" | "nodes" | "prior" -> [ k ]
    | "vectors" -> [ k; width claims ]
    | "distances" -> [ k; k ]
    | "outputs" | "output_lat" | "output_lon" -> [ m ]
    | "bound_pairs" -> [ whole 0 "" "bound_pairs" claims; 2 ]
    | "bound_multipliers" -> [ whole 0 "" "bound_pairs" claims; m ]
    | _ -> [ k; m ]
  in
  let reports claims =
    match if Json.has "reports" claims then Json.get "reports" claims else Json.Word "null" with
    | Json.Word "null" -> "records"
    | said -> Json.text (Json.get "kind" said)
  in
  let names claims =
    let places =
      match reports claims with
      | "records" | "labels" -> []
      | "places" -> [ "output_lat"; "output_lon" ]
      | other -> raise (Unreadable ("outputs of kind " ^ other))
    in
    let nodes =
      match field "domain" "nodes" claims with
      | Json.Word "true" -> [ "nodes" ]
      | Json.Word "false" -> []
      | _ -> raise (Unreadable "nodes is not true or false")
    in
    metric_arrays (kind claims) @ [ "outputs"; "weights" ] @ nodes @ places
  in
  let claims, raw, floors = (if compact then read_compact else read_archive) data shapes names in
  let form = if compact then "panda-mdp compact table" else "panda-mdp mechanism" in
  let version = if reports claims = "records" then 1 else 2 in
  need (Json.text (Json.get "format" claims) = form && whole 1 "" "version" claims = version
        && whole 62 "" "bits" claims = 62) "a foreign format";
  let kind = kind claims and unit = Json.text (field "domain" "unit" claims) in
  need (kind <> "haversine" || unit = "km") "great circles are in km";
  need (kind <> "angular" || unit = "rad") "angles are in rad";
  let tag = kind ^ "|" ^ unit in
  let about names =
    String.concat ""
      (List.map
         (fun name ->
           (if is_whole name then "<i8" else "<f8") ^ shape_text (shapes claims name) ^ List.assoc name raw)
         names)
  in
  let named = Sha256.hex (Printf.sprintf "|u1(%d,)" (String.length tag) ^ tag ^ about (metric_arrays kind)) in
  need (Json.text (field "domain" "fingerprint" claims) = named) "the certificate is of other records";
  let subject = String.sub named 0 32 ^ ":" ^ Sha256.hex (about [ "outputs"; "weights" ]) in
  need ((not (compact || Json.has "subject" claims)) || Json.text (Json.get "subject" claims) = subject)
    "the certificate is of another table";
  { claims; kind; unit; records = whole 2 "domain" "records" claims; outputs = whole 1 "" "outputs" claims;
    reports = reports claims; width = width claims; arrays = List.map (fun (name, text) -> (name, values name text)) raw; floors }
