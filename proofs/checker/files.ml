(* A file, its sum checked, as a header and arrays. The format is in docs/format.md; tables of PAnDA whose
   anchors are drawn by coins are refused by name. *)
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
  width : int; (* of a vector *)
  arrays : (string * values) list;
  floors : int64 array;
  stored : int -> (int * int64) list; (* of a row: columns, ascending, and weights; all others are at the floor *)
  large : bool; (* written out it would be more than a file may become *)
  edges : (int * int * int) list; (* of a graph: the lower end, the other, the length in steps *)
  apart : int array array Lazy.t; (* of a graph: all shortest paths, in steps *)
}

let unsigned data at = Int32.to_int (String.get_int32_le data at) land 0xffffffff
let product = List.fold_left ( * ) 1

let int64 z =
  need (Z.fits_int64 z) "a number beyond 64 bits";
  Z.to_int64 z

let width_of text count =
  need (text <> "") "a wrong section";
  let width = Char.code text.[0] in
  need (width <= 8 && String.length text = 1 + (width * count)) "a wrong section";
  width

(* The first bytes of every number, the others are 0. *)
let leading text count =
  let width = width_of text count in
  Array.init count (fun i ->
      let bits = Bytes.make 8 '\000' in
      for k = 0 to width - 1 do
        Bytes.set bits k text.[1 + (k * count) + i]
      done;
      Bytes.get_int64_be bits 0)

let planes text count =
  let width = width_of text count in
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
    need (rest i < m && byte (n + i) <= 46) "the rest is in no column, or a precision out of range";
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
        need (Z.sign code >= 0 && Z.leq code (Z.shift_left (Z.of_int (63 - p)) p))
          "a weight is out of range";
        let up = max 0 (Z.to_int (Z.shift_right code p) - 1) in
        row.(y) <- Z.shift_left (Z.sub code (Z.shift_left (Z.of_int up) p)) up)
    done;
    row.(rest i) <- Z.zero;
    row.(rest i) <- Z.sub total (Array.fold_left Z.add Z.zero row);
    rows.(i) <- row
  done;
  rows

(* ---- sections *)

type section = { coding : string; shape : int list; text : string }

let reals = [ "lat"; "lon"; "vectors"; "distances"; "output_lat"; "output_lon"; "prior"; "loss"; "mesh_area";
              "bound_prices"; "bound_multipliers"; "given_prior"; "given_loss"; "term_numbers"; "term_weights";
              "term_priors"; "term_places"; "term_multipliers" ]
let wholes = [ "nodes"; "outputs"; "weights"; "floor"; "starts"; "columns"; "values"; "order"; "bound_pairs";
               "bound_starts"; "bound_columns"; "mesh_vertices"; "mesh_inside"; "centres"; "candidates";
               "anchor_rows"; "edges"; "steps"; "peaks"; "term_kinds"; "term_guesses"; "term_pairs"; "term_starts";
               "term_columns" ]

let codings name =
  if List.mem name reals then [ "degrees"; "float64" ]
  else if List.mem name wholes then [ "integers"; "int64" ]
  else if name = "blocks" then [ "blocks" ]
  else []

let whole_from least v =
  let n = Json.whole v in
  need (n >= least && n < 1 lsl 53) "a number is out of range";
  n

let sealed_sections data =
  let size = String.length data - 32 in
  need (size >= 14 && String.sub data 0 10 = "panda-mdp\n") "foreign, or the file is too short";
  let raw = String.concat "" (List.init 32 (fun i -> Printf.sprintf "%02x" (Char.code data.[size + i]))) in
  need (Sha256.hex (String.sub data 0 size) = raw) "damaged or truncated";
  let at = ref (14 + unsigned data 10) in
  need (!at <= size) "the header is longer than the file";
  let text = String.sub data 14 (!at - 14) in
  let claims = Json.parse text in
  need (String.for_all (fun c -> c < '\128') text && Json.canonical claims = text)
    "the header is not in its canonical form";
  let version = Json.get "version" claims in
  need (Json.text (Json.get "format" claims) = "panda-mdp table" && version = Json.Number "1") "a foreign format";
  need (not (Json.has "selection" claims && Json.has "mesh" claims)) "a mesh has no selection";
  let plain = ref Z.zero in
  let one (name, entry) =
    match entry with
    | Json.List [ coding; Json.List shape; length ] ->
        let coding = Json.text coding and shape = List.map (whole_from 0) shape in
        let length = whole_from 0 length in
        need (List.mem coding (codings name)) (name ^ " is no section that is known here");
        need (!at + length <= size) "a section is longer than the file";
        let part = String.sub data !at length in
        at := !at + length;
        let count = List.fold_left (fun n k -> Z.mul n (Z.of_int k)) (Z.of_int 8) shape in
        let count = match shape with [ _; _; n ] -> Z.mul (Z.of_int 16) (Z.of_int n) | _ -> count in
        plain := Z.add !plain count;
        need (Z.leq !plain (Z.of_int (plain_limit size))) "it would unpack to too much";
        (name, { coding; shape; text = part })
    | _ -> raise (Unreadable "a section without coding, shape and length")
  in
  let sections =
    match Json.get "sections" claims with
    | Json.Object items -> List.map one items
    | _ -> raise (Unreadable "no sections")
  in
  need (!at = size) "the sections are not as long as the header says";
  (claims, sections)

let numbers name s =
  let count = product s.shape in
  let bits =
    match s.coding with
    | "int64" ->
        let text = Inflate.zlib s.text (8 * count) in
        need (String.length text = 8 * count) "a wrong section";
        Array.init count (fun i -> String.get_int64_le text (8 * i))
    | "float64" -> leading (Inflate.zlib s.text (1 + (8 * count))) count
    | _ ->
        let sums = Array.map int64 (running (planes (Inflate.zlib s.text (1 + (8 * count))) count)) in
        if s.coding = "integers" then sums
        else Array.map (fun n -> Int64.bits_of_float (Int64.to_float n /. 1e7)) sums
  in
  if List.mem name wholes then Whole bits else Real (Array.map Int64.float_of_bits bits)

let names_are names = function
  | Json.Object items -> List.sort compare (List.map fst items) = List.sort compare names
  | _ -> false

let check_header claims =
  let more = List.filter (fun name -> Json.has name claims) [ "factored"; "mesh"; "selection" ] in
  let known =
    names_are
      (more @ [ "format"; "version"; "features"; "sections"; "epsilon"; "domain"; "outputs"; "loss"; "notes" ])
      claims
    && Json.get "features" claims = Json.List (List.map (fun name -> Json.Text ("\"" ^ name ^ "\"")) more)
    && names_are [ "kind"; "unit"; "labels" ] (Json.get "domain" claims)
    && names_are [ "kind"; "labels" ] (Json.get "outputs" claims)
    && names_are [ "power"; "unit"; "digest" ] (Json.get "loss" claims)
    && names_are
         [ "method"; "library"; "date"; "prior_source"; "stages"; "details"; "lower_bound"; "loss" ]
         (Json.get "notes" claims)
  in
  need known "a field is missing, or another is there";
  let notes = Json.get "notes" claims in
  let text = function Json.Text _ -> () | _ -> raise (Unreadable "a text is due") in
  let number_or_null = function Json.Word "null" -> () | v -> ignore (Json.number v) in
  List.iter (fun name -> text (Json.get name notes)) [ "method"; "library"; "date"; "prior_source" ];
  text (Json.get "unit" (Json.get "loss" claims));
  (match Json.get "stages" notes with
  | Json.List stages ->
      List.iter
        (function
          | Json.List [ name; seconds ] -> text name; ignore (Json.number seconds)
          | _ -> raise (Unreadable "a stage is a name and seconds"))
        stages
  | _ -> raise (Unreadable "stages are a list"));
  (match Json.get "details" notes with
  | Json.Object _ -> ()
  | _ -> raise (Unreadable "details are no object"));
  number_or_null (Json.get "lower_bound" notes);
  number_or_null (Json.get "loss" notes)

let metric_arrays = function
  | "haversine" -> [ "lat"; "lon" ]
  | "matrix" -> [ "distances" ]
  | "euclidean" | "angular" -> [ "vectors" ]
  | "graph" -> [ "edges"; "steps" ]
  | _ -> raise (Unreadable "distances of an unknown kind")

(* Without control characters. *)
let plain text = List.for_all (fun c -> c >= 32 && (c < 127 || c >= 160)) (Json.characters text)

(* Texts without control characters and finite numbers, all different; 1, 1.0 and true are the same number. *)
let check_labels labels count =
  let value = function
    | Json.Text t as v ->
        need (plain (Json.text v)) "a label with control characters";
        (t, Q.zero)
    | Json.Number n as v ->
        let f = Json.number v in
        ("", if Json.is_whole n then Q.of_string n else Q.of_float f)
    | Json.Word "true" -> ("", Q.one)
    | Json.Word "false" -> ("", Q.zero)
    | _ -> raise (Unreadable "labels are texts or numbers")
  in
  let order (a, p) (b, q) = match compare a b with 0 -> Q.compare p q | c -> c in
  match labels with
  | Json.Word "null" -> ()
  | Json.List names ->
      need (List.length names = count && List.length (List.sort_uniq order (List.map value names)) = count)
        "labels are not distinct texts or numbers"
  | _ -> raise (Unreadable "labels are no list")

let below count v = v >= 0L && v < Int64.of_int count

(* Coordinates and distances are 0 or of a size whose squares float64 can hold; directions have length 1 and
   are 1e-7 from each other. *)
let check_sizes kind width arrays =
  let within least most a = Array.for_all (fun v -> v = 0. || (Float.abs v >= least && Float.abs v <= most)) a in
  match (kind, arrays) with
  | "haversine", [ (_, Real lat); (_, Real lon) ] ->
      need (within 1e-100 90. lat && within 1e-100 180. lon && not (Array.mem 180. lon)) "a record is no place"
  | "euclidean", [ (_, Real a) ] -> need (within 1e-120 1e140 a) "a coordinate is out of range"
  | "matrix", [ (_, Real a) ] -> need (within 1e-250 1e250 a) "a distance is out of range"
  | _, [ (_, Real a) ] ->
      need (Array.for_all (fun v -> Float.abs v <= 2.) a) "a direction is not of length 1";
      let k = Array.length a / width in
      let square i =
        let sum = ref Q.zero in
        for c = 0 to width - 1 do
          let v = Q.of_float a.((i * width) + c) in
          sum := Q.add !sum (Q.mul v v)
        done;
        !sum
      in
      let error = Q.of_ints 2 1_000_000_000_000_000 in
      for i = 0 to k - 1 do
        need (Q.lt (Q.abs (Q.sub (square i) Q.one)) error) "a direction is not of length 1";
        for j = 0 to i - 1 do
          let sum = ref 0. in
          for c = 0 to width - 1 do
            let v = a.((i * width) + c) -. a.((j * width) + c) in
            sum := !sum +. (v *. v)
          done;
          need (!sum >= 1e-14) "two directions are the same"
        done
      done
  | _ -> ()

let most_losses = 1 lsl 26 (* that follow from distances and are written out *)
let most_apart = 2000 (* records of which all shortest paths are looked for *)

(* Edges between records, how many records, and the lengths of all shortest paths in steps, where they are
   asked for. Every edge joins two records, the lower first, no path around it is as short, and some path joins
   any two. *)
let paths edges steps =
  let count = Array.length steps and total = Array.fold_left Z.add Z.zero (Array.map Z.of_int64 steps) in
  need (count > 0 && Array.for_all (fun v -> v >= 0L) edges) "edges that are none";
  need (Array.for_all (fun v -> v > 0L) steps && Z.lt total (Z.shift_left Z.one 53)) "edges without a length, or too long";
  need (Array.for_all (fun v -> v <= Int64.of_int count) edges) "records that no path joins";
  let ends = Array.init count (fun e -> (Int64.to_int edges.(2 * e), Int64.to_int edges.((2 * e) + 1))) in
  let k = 1 + Array.fold_left (fun most (_, j) -> max most j) 0 ends in
  let around = Array.make k [] in
  Array.iteri
    (fun e (i, j) ->
      need (i < j && (e = 0 || compare ends.(e - 1) (i, j) < 0)) "edges do not ascend, the lower end first";
      let length = Int64.to_int steps.(e) in
      around.(i) <- (j, length) :: around.(i);
      around.(j) <- (i, length) :: around.(j))
    ends;
  let module Queue = Set.Make (struct type t = int * int let compare = compare end) in
  let search source limit =
    let best = Hashtbl.create 64 in
    let rec go queue =
      match Queue.min_elt_opt queue with
      | None -> best
      | Some (far, i) ->
          let step queue (j, length) =
            let now = far + length and before = Hashtbl.find_opt best j in
            if now > limit || Option.fold ~none:false ~some:(fun b -> b <= now) before then queue
            else (
              Hashtbl.replace best j now;
              Queue.add (now, j) (Option.fold ~none:queue ~some:(fun b -> Queue.remove (b, j) queue) before))
          in
          go (List.fold_left step (Queue.remove (far, i) queue) around.(i))
    in
    Hashtbl.replace best source 0;
    go (Queue.singleton (0, source))
  in
  need (Hashtbl.length (search 0 max_int) = k) "records that no path joins";
  Array.iteri
    (fun i near ->
      let best = search i (List.fold_left (fun most (_, length) -> max most length) 0 near) in
      let longer (j, length) =
        let past (v, last) =
          v = i || match Hashtbl.find_opt best v with Some far -> far + last > length | None -> true
        in
        List.for_all past around.(j)
      in
      need (List.for_all longer near) "a path around an edge is as short")
    around;
  let all () = Array.init k (fun i -> let best = search i max_int in Array.init k (Hashtbl.find best)) in
  (k, List.init count (fun e -> let i, j = ends.(e) in (i, j, Int64.to_int steps.(e))), Lazy.from_fun all)

(* Rows of peaks over a lattice; docs/format.md has the law. *)
let peaked law vectors k width centres peaks =
  need (names_are [ "unit_bits"; "rate" ] law) "another law of peaks";
  let bits = whole_from (-400) (Json.get "unit_bits" law) and rate = whole_from 1 (Json.get "rate" law) in
  need (bits <= 400 && rate <= 34 lsl 40) "a lattice or a fall out of range";
  let m = Array.length peaks and from_to low high v = v >= low && v <= high in
  need (Array.for_all (below k) centres && Array.for_all (from_to 1L 2147483648L) peaks) "peaks of no record or weight";
  let reach = Z.of_int ((34 lsl 40) / rate) and rate = Z.of_int rate in
  let half = Q.of_ints 1 2 in
  let nearest v =
    need (Float.abs v < Float.ldexp 1. 400) "a vector is too long for a lattice";
    let q = if bits >= 0 then Q.mul_2exp (Q.of_float v) bits else Q.div_2exp (Q.of_float v) (-bits) in
    let down = Z.fdiv (Q.num q) (Q.den q) in
    match Q.compare (Q.sub q (Q.of_bigint down)) half with
    | c when c < 0 -> down
    | 0 -> if Z.is_even down then down else Z.succ down
    | _ -> Z.succ down
  in
  let points = Array.map nearest vectors in
  let largest = Array.fold_left (fun most p -> Z.max most (Z.abs p)) Z.zero points in
  need (Z.lt (Z.mul (Z.of_int width) (Z.mul largest largest)) (Z.shift_left Z.one 50)) "points too far apart for a lattice";
  let points = Array.map Z.to_int points in
  let powers count digits =
    let root = ref (Z.shift_left Z.one 119) in
    for _ = 1 to digits do root := Z.sqrt (Z.shift_left !root 120) done;
    let power = ref (Z.shift_left Z.one 120) in
    Array.init count (fun _ ->
        let now = Z.to_int (Z.shift_right !power 89) in
        power := Z.shift_right (Z.mul !power !root) 120;
        now)
  in
  let first = powers 16384 14 and second = powers 8192 27 and third = powers 8192 40 in
  let ticks x c =
    let square = ref 0 in
    for i = 0 to width - 1 do
      let step = points.((x * width) + i) - points.((c * width) + i) in
      square := !square + (step * step)
    done;
    let root, rest = Z.sqrt_rem (Z.of_int !square) in
    Z.min reach (if Z.equal rest Z.zero then root else Z.succ root)
  in
  let row x =
    let sums = Array.init m (fun y ->
      let steps = Z.mul rate (ticks x (Int64.to_int centres.(y))) in
      let part = Z.to_int (Z.extract steps 0 40) and halvings = Z.to_int (Z.shift_right steps 40) in
      let factor = (first.(part lsr 26) * second.((part lsr 13) land 8191)) lsr 31 in
      let factor = (factor * third.(part land 8191)) lsr 31 in
      Z.shift_right (Z.mul (Z.of_int64 peaks.(y)) (Z.of_int factor)) halvings) in
    let top = ref 0 in
    Array.iteri (fun y v -> if Z.gt v sums.(!top) then top := y) sums;
    let rest = Z.sub total (Array.fold_left Z.add Z.zero sums) in
    need (Z.sign rest >= 0 && Z.sign sums.(!top) > 0) "a row exceeds the whole, or is empty";
    sums.(!top) <- Z.add sums.(!top) rest;
    Array.map int64 sums
  in
  Array.concat (List.init k row)

(* Rows that are told as what lies above a floor. *)
let over_floor starts columns values k m =
  need (Array.for_all (below (Array.length columns + 1)) starts && Array.for_all (below m) columns) "entries of no row";
  let at = Array.map Int64.to_int in
  let starts = at starts and columns = at columns in
  need (Array.length starts = k + 1 && starts.(0) = 0 && starts.(k) = Array.length columns) "entries of no row";
  for x = 0 to k - 1 do
    need (starts.(x) <= starts.(x + 1) && starts.(x + 1) <= Array.length columns) "starts that fall";
    for i = starts.(x) + 1 to starts.(x + 1) - 1 do
      need (columns.(i - 1) < columns.(i)) "columns do not ascend"
    done
  done;
  fun x ->
    let entry i = (columns.(starts.(x) + i), values.(starts.(x) + i)) in
    List.init (starts.(x + 1) - starts.(x)) entry

let from_blocks floor order s k m =
  need (m <= 65536 && Array.length order = k) "blocks of another shape";
  let place = Array.make k (-1) in
  Array.iteri
    (fun i x ->
      need (below k x) "the order does not name each record once";
      let x = Int64.to_int x in
      need (place.(x) < 0) "the order does not name each record once";
      place.(x) <- i)
    order;
  let floors = Array.map Z.of_int64 floor in
  need (Array.for_all (fun z -> Z.sign z >= 0) floors
        && Z.leq (Array.fold_left Z.add Z.zero floors) total) "the floors are no weights";
  let at = ref 0 in
  let above row =
    let entry y w = if Z.equal w floors.(y) then None else Some (y, int64 w) in
    List.filter_map Fun.id (List.mapi entry (Array.to_list row))
  in
  let rows =
    Array.concat
      (List.init ((k + 255) / 256) (fun b ->
           need (!at + 4 <= String.length s.text) "blocks end early";
           let length = unsigned s.text !at in
           need (!at + 4 + length <= String.length s.text) "blocks end early";
           let text = String.sub s.text (!at + 4) length in
           at := !at + 4 + length;
           Array.map above (block text (min 256 (k - (256 * b))) floors)))
  in
  need (!at = String.length s.text) "blocks are longer than their rows";
  let stored = Array.fold_left (fun sum row -> sum + List.length row) 0 rows in
  need (s.shape = [ k; m; stored ]) "blocks of another number of entries";
  fun x -> rows.(place.(x))

let read data =
  let claims, sections = sealed_sections data in
  check_header claims;
  let taken = ref [] in
  let has name = List.mem_assoc name sections in
  let section name =
    match List.assoc_opt name sections with
    | Some s -> taken := name :: !taken; s
    | None -> raise (Unreadable ("the section " ^ name ^ " is missing"))
  in
  let take name shape =
    let s = section name in
    need (List.length s.shape = List.length shape
          && List.for_all2 (fun a b -> b < 0 || a = b) s.shape shape) (name ^ " has another shape");
    (name, numbers name s)
  in
  let whole name shape = match take name shape with _, Whole a -> a | _ -> assert false in
  let optional name shape = if has name then [ take name shape ] else [] in
  let domain = Json.get "domain" claims and outputs = Json.get "outputs" claims in
  let kind = Json.text (Json.get "kind" domain) and unit = Json.text (Json.get "unit" domain) in
  need (kind <> "haversine" || unit = "km") "great circles are in km";
  need (kind <> "angular" || unit = "rad") "angles are in rad";
  let units = [ unit; Json.text (Json.get "unit" (Json.get "loss" claims)) ] in
  need (List.for_all plain units) "a unit with control characters";
  let first = section (List.hd (metric_arrays kind)) in
  let edges = if kind = "graph" then (
    let edges = whole "edges" [ -1; 2 ] in
    [ ("edges", Whole edges); take "steps" [ Array.length edges / 2 ] ]) else [] in
  let joined, ways, apart =
    match edges with [ (_, Whole edges); (_, Whole steps) ] -> paths edges steps | _ -> (0, [], lazy [||])
  in
  let k = if kind = "graph" then joined else match first.shape with k :: _ -> k | [] -> 0 in
  let width = match first.shape with [ _; w ] when metric_arrays kind = [ "vectors" ] -> w | _ -> 0 in
  need (k >= 2 && (width > 0 || metric_arrays kind <> [ "vectors" ])) "fewer than two records";
  let shape = match kind with "haversine" -> [ k ] | "matrix" -> [ k; k ] | _ -> [ k; width ] in
  let places = if kind = "graph" then edges else List.map (fun name -> take name shape) (metric_arrays kind) in
  check_sizes kind width places;
  let within least most = function _, Real a -> Array.for_all (fun v -> v >= least && v <= most) a | _ -> false in
  let degrees lat lon =
    need (within (-90.) 90. lat && within (-180.) (Float.pred 180.) lon) "a record or an output is no place"
  in
  if kind = "graph" && has "lat" then degrees (take "lat" [ k ]) (take "lon" [ k ]);
  check_labels (Json.get "labels" domain) k;
  let labels = Json.get "labels" outputs in
  let reports, m =
    match Json.text (Json.get "kind" outputs) with
    | "records" ->
        need (labels = Json.Word "null") "records have labels of their own";
        let found = whole "outputs" [ -1 ] in
        let indices = List.sort_uniq compare (Array.to_list found) in
        need (List.length indices = Array.length found
              && Array.for_all (below k) found) "an output is no record, or twice";
        ([ ("outputs", Whole found) ], Array.length found)
    | "places" ->
        let lat = take "output_lat" [ -1 ] in
        let m = match lat with _, Real a -> Array.length a | _ -> 0 in
        let lon = take "output_lon" [ m ] in
        degrees lat lon;
        ([], m)
    | "labels" -> ([], match labels with Json.List names -> List.length names | _ -> 0)
    | other -> raise (Unreadable ("outputs of kind " ^ other))
  in
  need (m >= 1) "no outputs";
  check_labels labels m;
  let power = Json.get "power" (Json.get "loss" claims) in
  (match power with
  | Json.Word "null" -> ()
  | v ->
      let power = Json.number v in
      need (power > 0. && power <= 16. && not (has "loss")) "losses twice, or a power that is none";
      let kind_of_outputs = Json.text (Json.get "kind" outputs) in
      need (kind_of_outputs = "records" || (kind_of_outputs = "places" && kind = "haversine"))
        "these outputs have no distance to the records";
      let largest a = Array.fold_left (fun most v -> Float.max most (Float.abs v)) 0. a in
      let steep = function
        | _, Real a -> Z.gt (Z.pow (Z.of_float (largest a)) (int_of_float (Float.ceil power))) (Z.pow (Z.of_int 10) 250)
        | _, Whole a ->
            let most = Z.of_int64 (Array.fold_left max 0L a) in
            Z.gt (Z.pow most (int_of_float (Float.ceil power))) (Z.pow (Z.of_int 10) 250)
      in
      need (power <= 1. || not (List.exists steep places)) "losses beyond float64");
  let hexadecimal c = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') in
  (match Json.get "digest" (Json.get "loss" claims) with
  | Json.Word "null" -> need (power <> Json.Word "null" || has "loss") "losses are left out without their digest"
  | Json.Text _ as said ->
      let d = Json.text said in
      need (power = Json.Word "null" && not (has "loss") && String.length d = 64 && String.for_all hexadecimal d)
        "a digest of losses that are here, or none"
  | _ -> raise (Unreadable "a digest is a text"));
  let others = optional "nodes" [ k ] @ optional "prior" [ k ] @ optional "loss" [ k; m ] in
  let large = 8 * k * m > plain_limit (String.length data) in
  let follow = if power = Json.Word "null" then 0 else min (k * m) most_losses in
  need (8 * follow <= plain_limit (String.length data)) "it would unpack to too much";
  need (power = Json.Word "null" || k * m <= most_losses || Json.text (Json.get "kind" outputs) = "records")
    "too many losses of places";
  let regions =
    if Json.has "mesh" claims then (
      need (kind = "haversine" && names_are [ "middle"; "spacing" ] (Json.get "mesh" claims)) "a mesh is over places";
      [ take "mesh_vertices" [ k; 2 ]; take "mesh_area" [ -1; 2 ]; take "mesh_inside" [ k ] ])
    else if Json.has "selection" claims then (
      let chosen = Json.get "selection" claims in
      let found = Json.text (Json.get "kind" chosen) in
      need (found <> "coins") "a table with coins is not read here";
      need (found = "ball" && names_are [ "kind"; "delta"; "epsilon"; "edge"; "radius" ] chosen
            && not (Json.has "factored" claims)) "another selection";
      [])
    else []
  in
  let array weights = ((fun x -> List.init m (fun y -> (y, weights.((x * m) + y)))), Array.make m 0L) in
  let stored, floors =
    if Json.has "factored" claims then (
      need (kind = "euclidean" && not (Json.has "selection" claims)) "peaks over a lattice need vectors";
      need (not large) "it would unpack to too much";
      let vectors = match places with [ (_, Real a) ] -> a | _ -> [||] in
      let centres = whole "centres" [ m ] and peaks = whole "peaks" [ m ] in
      array (peaked (Json.get "factored" claims) vectors k width centres peaks))
    else if has "weights" then array (whole "weights" [ k; m ])
    else
      let floor = whole "floor" [ m ] in
      need (Array.for_all (fun w -> Int64.compare w 0L >= 0) floor) "a floor is negative";
      if has "blocks" then (from_blocks floor (whole "order" [ k ]) (section "blocks") k m, floor)
      else
        let columns = whole "columns" [ -1 ] in
        let values = whole "values" [ Array.length columns ] in
        (over_floor (whole "starts" [ k + 1 ]) columns values k m, floor)
  in
  let multipliers about records =
    let name part = about ^ part in
    let pairs = whole (name "_pairs") [ -1; 2 ] and columns = whole (name "_columns") [ -1 ] in
    let n = Array.length columns and e = Array.length pairs / 2 in
    let starts = whole (name "_starts") [ e + 1 ] in
    need (starts.(0) = 0L && starts.(e) = Int64.of_int n) "multipliers of no pair";
    for i = 0 to e - 1 do
      need (starts.(i) <= starts.(i + 1)) "starts that fall"
    done;
    need (Array.for_all (below records) pairs && Array.for_all (below m) columns) "a pair of no records or outputs";
    [ (name "_pairs", Whole pairs); (name "_starts", Whole starts); (name "_columns", Whole columns);
      take (name "_multipliers") [ n ] ]
  in
  (* What a limit is about: terms, and their guesses with weights; docs/format.md. *)
  let terms () =
    let real name shape = match take name shape with _, Real a -> a | _ -> assert false in
    let kinds = whole "term_kinds" [ -1; 2 ] in
    let count = Array.length kinds / 2 in
    let numbers = real "term_numbers" [ count; 4 ] and guesses = whole "term_guesses" [ -1; 3 ] in
    let n = Array.length guesses / 3 in
    let weights = real "term_weights" [ n ] in
    let priors = if has "term_priors" then real "term_priors" [ -1; k ] else [||] in
    let wide = if kind = "haversine" then 2 else width in
    let between = kind = "haversine" || (kind = "euclidean" && width <= 2) in
    need (between || not (has "term_places")) "guesses at places where there are none";
    let places = if has "term_places" then real "term_places" [ -1; wide ] else [||] in
    let on_earth i v = if i mod 2 = 0 then Float.abs v <= 90. else v >= -180. && v < 180. in
    let sized v = v = 0. || (Float.abs v >= 1e-120 && Float.abs v <= 1e140) in
    Array.iteri (fun i v -> need (if kind = "haversine" then on_earth i v else sized v) "a guess is at no place") places;
    let found = if has "term_places" then Array.length places / max 1 wide else 0 in
    let from_zero = Array.for_all (fun v -> v >= 0. && v < infinity) in
    need (from_zero weights && from_zero priors) "a weight or a prior is negative";
    let at i = Int64.to_int kinds.(2 * i) in
    let grown = ref false in
    for i = 0 to count - 1 do
      let number j = numbers.((4 * i) + j) in
      need (below 4 kinds.(2 * i) && below ((Array.length priors / k) + 1) kinds.((2 * i) + 1)) "a term of no kind or prior";
      need (from_zero [| number 0; number 2; number 3 |]) "a number of a term is out of range";
      if number 0 *. number 2 > 0. then grown := true
    done;
    need !grown "no term grows";
    let seen = Hashtbl.create 64 in
    for i = 0 to n - 1 do
      let term = guesses.(3 * i) and y = guesses.((3 * i) + 1) and g = guesses.((3 * i) + 2) in
      need (below count term && below m y && below (k + found) g) "a guess of no term, output or place";
      let what = at (Int64.to_int term) in
      need (what <> 0 && (what <> 1 || below k g)) "a guess that is none";
      if weights.(i) > 0. then Hashtbl.replace seen (term, y) ()
    done;
    let due = List.length (List.filter (fun i -> at i <> 0) (List.init count Fun.id)) in
    need (Hashtbl.length seen = due * m) "an output without a guess";
    let given name a = if has name then [ (name, Real a) ] else [] in
    [ ("term_kinds", Whole kinds); ("term_numbers", Real numbers); ("term_guesses", Whole guesses);
      ("term_weights", Real weights) ]
    @ given "term_priors" priors @ given "term_places" places @ multipliers "term" k
  in
  let bound =
    if has "bound_prices" && not (Json.has "selection" claims) then [ take "bound_prices" [ k ] ]
    else if has "bound_pairs" && not (Json.has "selection" claims) then (
      let given =
        if Json.has "mesh" claims && has "given_prior" then take "given_prior" [ k ] :: optional "given_loss" [ k; m ]
        else []
      in
      need (given <> [] = has "given_prior") "what was given of no mesh";
      need (List.length given <> 1 || Json.text (Json.get "kind" outputs) <> "labels")
        "these outputs have no distance to the records";
      let people = match given with
        | (_, Real p) :: _ -> Array.fold_left (fun n v -> if v > 0. then n + 1 else n) 0 p
        | _ -> k
      in
      given @ multipliers "bound" people)
    else []
  in
  let terms = if has "term_kinds" && not (Json.has "selection" claims) then terms () else [] in
  let names = List.sort_uniq compare !taken in
  need (names = List.sort compare (List.map fst sections)) "sections that do not belong to it";
  { claims; kind; unit; records = k; outputs = m; width; floors; stored; large; edges = ways; apart;
    arrays = places @ reports @ others @ regions @ bound @ terms }
