(* checker FILE: reads a .pmdp file and lets the proved functions decide; `checker -` does so for every
   path that it is given on a line of its input.

   `Checked.accept` and `Checked.bound_ok` are extracted from the proofs; this file turns what was read
   into their arguments. Exit code 0: it holds; 1: it does not; 2: not readable. *)
open Files

exception Refused of string

let refuse condition reason = if not condition then raise (Refused reason)

(* A float as n 2^e, exactly, n odd or 0. *)
let dyadic f =
  refuse (Float.is_finite f) "not every number is finite";
  let m, e = Float.frexp f in
  let n = Z.of_float (Float.ldexp m 53) in
  if Z.sign n = 0 then (Z.zero, 0)
  else
    let zeros = Z.trailing_zeros n in
    (Z.shift_right n zeros, e - 53 + zeros)

(* Floats as whole numbers over one power of two. *)
let over_one_power floats =
  let parts = Array.map dyadic floats in
  let least = Array.fold_left (fun least (_, e) -> min least e) 0 parts in
  (Array.map (fun (n, e) -> Z.shift_left n (e - least)) parts, Z.shift_left Z.one (-least))

let fraction f =
  let n, e = dyadic f in
  if e >= 0 then (Z.shift_left n e, Z.one) else (n, Z.shift_left Z.one (-e))

let whole table name =
  match List.assoc name table.arrays with Whole a -> a | Real _ -> assert false

let real table name = match List.assoc name table.arrays with Real a -> a | Whole _ -> assert false
let number name claims = Json.number (Json.get name claims)

(* The points of the records, the space, and coordinates by which to sort them into tiles. *)
let points table =
  let k = table.records in
  match table.kind with
  | "haversine" ->
      let lat = real table "lat" and lon = real table "lon" in
      let numbers, den = over_one_power (Array.append lat lon) in
      ( Array.init k (fun i -> [ numbers.(i); numbers.(k + i) ]),
        Checked.Sphere den,
        Some (fun i c -> if c = 0 then lat.(i) else lon.(i)) )
  | "matrix" ->
      let numbers, den = over_one_power (real table "distances") in
      ( Array.init k (fun i -> Z.of_int i :: Array.to_list (Array.sub numbers (i * k) k)),
        Checked.Given den, None )
  | kind ->
      let vectors = real table "vectors" and w = table.width in
      let numbers, den = over_one_power vectors in
      ( Array.init k (fun i -> Array.to_list (Array.sub numbers (i * w) w)),
        (if kind = "angular" then Checked.Directions else Checked.Euclidean den),
        Some (fun i c -> vectors.((i * w) + (c mod w))) )

(* Records that lie together, at most 32 to a tile: halves along the wider of two coordinates. *)
let rec cut place records =
  if Array.length records <= 32 then [ Array.to_list records ]
  else
    let span c =
      let v = Array.map (fun i -> place i c) records in
      Array.fold_left max neg_infinity v -. Array.fold_left min infinity v
    in
    let c = if span 0 >= span 1 then 0 else 1 in
    let sorted = Array.copy records in
    Array.stable_sort (fun a b -> compare (place a c) (place b c)) sorted;
    let half = Array.length sorted / 2 in
    cut place (Array.sub sorted 0 half)
    @ cut place (Array.sub sorted half (Array.length sorted - half))

let checked table epsilon =
  let k = table.records and m = table.outputs in
  let weights = whole table "weights" in
  let points, metric, place = points table in
  let floors = if table.floors = [] then List.init m (fun _ -> Z.zero) else table.floors in
  let row x =
    List.filter_map Fun.id
      (List.mapi
         (fun y floor ->
           let w = Z.of_int64 weights.((x * m) + y) in
           if Z.equal w floor then None else Some (Z.of_int y, w))
         floors)
  in
  let records = Array.init k (fun x -> (points.(x), row x)) in
  let all = Array.init k Fun.id in
  let tiles = match place with Some place -> cut place all | None -> [ Array.to_list all ] in
  let epsilon_num, epsilon_den = fraction epsilon in
  { Checked.epsilon_num; epsilon_den; metric; floors;
    tiles = List.map (List.map (fun x -> records.(x))) tiles }

let check_numbers table =
  List.iter
    (function _, Real a -> Array.iter (fun v -> refuse (Float.is_finite v) "not every number is finite") a
      | _ -> ())
    table.arrays;
  let epsilon = number "epsilon" table.claims in
  refuse (epsilon > 0.) "epsilon is not positive";
  epsilon

(* prior times loss, over one denominator. *)
let costs table loss =
  let m = table.outputs in
  let even = Array.make table.records (1. /. float_of_int table.records) in
  let prior, p = over_one_power (if List.mem_assoc "prior" table.arrays then real table "prior" else even) in
  let loss, c = over_one_power loss in
  let positive = Array.for_all (fun v -> Z.sign v >= 0) in
  let mass = Q.make (Array.fold_left Z.add Z.zero prior) p in
  let billionth = Q.of_ints 1 1_000_000_000 in
  refuse (positive prior && positive loss && Q.leq (Q.abs (Q.sub mass Q.one)) billionth)
    "the prior is no law, or a loss is negative";
  (Array.mapi (fun i l -> Z.mul prior.(i / m) l) loss, Z.mul p c)

let check_loss table epsilon =
  let m = table.outputs and weights = whole table "weights" in
  let given = List.mem_assoc "loss" table.arrays in
  let losses = if given then real table "loss" else Array.make (table.records * m) 0. in
  let costs, unit = costs table losses in
  let stated =
    match Json.get "lower_bound" (Json.get "notes" table.claims) with
    | Json.Word "null" -> None
    | v -> Some (Json.number v)
  in
  let multipliers, l =
    if List.mem_assoc "bound_pairs" table.arrays then over_one_power (real table "bound_multipliers")
    else ([||], Z.one)
  in
  let pairs = if List.mem_assoc "bound_pairs" table.arrays then whole table "bound_pairs" else [||] in
  refuse (Array.for_all (fun v -> Z.sign v >= 0) multipliers) "a multiplier is negative";
  if not given then "not computed: the losses are not in the file"
  else
    let sum = ref Z.zero in
    Array.iteri (fun i c -> sum := Z.add !sum (Z.mul c (Z.of_int64 weights.(i)))) costs;
    let exact = Q.make !sum (Z.mul unit (Z.shift_left Z.one 62)) in
    if pairs = [||] then
      match stated with
      | None -> "none"
      | Some _ -> "stated, not proved in this file"
    else
      let rows =
        List.init table.records (fun x -> List.init m (fun y -> Z.mul l costs.((x * m) + y)))
      in
      let starts = whole table "bound_starts" and columns = whole table "bound_columns" in
      let written_out e =
        let row = Array.make m Z.zero in
        for i = Int64.to_int starts.(e) to Int64.to_int starts.(e + 1) - 1 do
          let y = Int64.to_int columns.(i) in
          row.(y) <- Z.add row.(y) (Z.mul unit multipliers.(i))
        done;
        Array.to_list row
      in
      let steps =
        List.init (Array.length pairs / 2) (fun e ->
            ((Z.of_int64 pairs.(2 * e), Z.of_int64 pairs.((2 * e) + 1)), written_out e))
      in
      let points, metric, _ = points table in
      let epsilon_num, epsilon_den = fraction epsilon in
      let bare = { Checked.epsilon_num; epsilon_den; metric; floors = [];
                   tiles = [ List.map (fun p -> (p, [])) (Array.to_list points) ] } in
      let rec nat n = if n = 0 then Checked.O else Checked.S (nat (n - 1)) in
      (* What is proved is asked for: 1 % below the loss, 2 %, 4 % and so on. *)
      let proves share =
        let b = Q.mul exact (Q.sub Q.one share) in
        Checked.bound_ok bare (nat m) (Z.mul unit l) rows steps (Q.num b) (Q.den b)
      in
      let rec widest percent =
        if percent > 64 then "none that is proved"
        else if proves (Q.of_ints percent 100) then Printf.sprintf "proved within %d %% of the loss" percent
        else widest (2 * percent)
      in
      widest 1

let load path =
  let channel = open_in_bin path in
  Fun.protect
    ~finally:(fun () -> close_in channel)
    (fun () -> really_input_string channel (in_channel_length channel))

let main path =
  match read (load path) with
  | exception (Unreadable reason | Json.Wrong reason | Inflate.Wrong reason | Sys_error reason) ->
      Printf.printf "not readable: %s\n" reason;
      2
  | exception other -> (* whatever it is: what was not read is not vouched for *)
      Printf.printf "not readable: %s\n" (Printexc.to_string other);
      2
  | table -> (
      match
        let epsilon = check_numbers table in
        refuse (Checked.accept (checked table epsilon))
          (Printf.sprintf "rows, metric or pairs: not private at %.17g" epsilon);
        (epsilon, check_loss table epsilon)
      with
      | exception (Refused reason | Json.Wrong reason) ->
          Printf.printf "DOES NOT HOLD: %s\n" reason;
          1
      | exception other ->
          Printf.printf "DOES NOT HOLD: %s\n" (Printexc.to_string other);
          1
      | epsilon, bound ->
          Printf.printf "holds: epsilon %.17g per %s over all pairs and outputs; bound: %s\n" epsilon
            table.unit bound;
          0)

let rec every_line () =
  match input_line stdin with
  | path ->
      ignore (main path);
      flush stdout;
      every_line ()
  | exception End_of_file -> 0

let () = exit (if Sys.argv.(1) = "-" then every_line () else main Sys.argv.(1))
