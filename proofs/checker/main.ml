(* checker FILE: reads a .pmdp or .pmdc file and lets the proved functions decide.

   `Checked.accept` and `Checked.bound_ok` are extracted from the proofs; this file turns what was read
   into their arguments and compares what the certificate says. Exit code 0: it holds; 1: something that
   is claimed is not so; 2: not readable. *)
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
      Array.iter (fun a -> refuse (a >= -90. && a <= 90.) "a latitude is out of range") lat;
      Array.iter (fun a -> refuse (a >= -180. && a < 180.) "a longitude is out of range") lon;
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

let check_claims table =
  let claims = table.claims and k = table.records in
  List.iter
    (function _, Real a -> Array.iter (fun v -> refuse (Float.is_finite v) "not every number is finite") a
      | _ -> ())
    table.arrays;
  let outputs = Array.to_list (Array.map Int64.to_int (whole table "outputs")) in
  let most = if table.reports = "records" then k else table.outputs in
  refuse (List.for_all (fun y -> y >= 0 && y < most) outputs
          && List.length (List.sort_uniq compare outputs) = table.outputs)
    "an output is no record, or named twice";
  let labels = if Json.has "reports" claims then Json.get "reports" claims else Json.Word "null" in
  (match if Json.has "labels" labels then Json.get "labels" labels else Json.Word "null" with
  | Json.Word "null" -> ()
  | Json.List names ->
      refuse (List.length names = table.outputs && List.length (List.sort_uniq compare names) = table.outputs)
        "labels are not distinct"
  | _ -> raise (Refused "labels are not distinct"));
  let audit = Json.get "audit" claims and epsilon = number "epsilon" claims in
  let audited = number "epsilon" audit in
  refuse (epsilon > 0. && audited >= 0. && audited <= epsilon
          && Json.get "holds" audit = Json.Word "true"
          && Json.whole (Json.get "pairs" audit) = k * (k - 1) / 2)
    "the stated audit does not cover the claim";
  (match Json.get "worst" audit with
  | Json.List [ x; x2; y ] ->
      let x = Json.whole x and x2 = Json.whole x2 in
      refuse (min x x2 >= 0 && max x x2 < k && x <> x2 && List.mem (Json.whole y) outputs)
        "the stated worst pair is none"
  | _ -> raise (Refused "the stated worst pair is none"));
  let said = match Json.get "epsilon" claims with
    | Json.Number n when String.exists (fun c -> c = '.' || c = 'e') n -> n
    | Json.Number n -> n ^ ".0"
    | _ -> "" in
  let says name words =
    let text = Json.text (Json.get name claims) and n = String.length words in
    let rec at i = i + n <= String.length text && (String.sub text i n = words || at (i + 1)) in
    at 0
  in
  let holds_words =
    says "guarantee" (Printf.sprintf "exp(%s d(x, x')) z(y|x'), d in %s." said table.unit)
    && says "snapping" (Printf.sprintf "z(y|p) <= exp(%s (d(p, p') + " said)
  in
  refuse (holds_words && Json.text (Json.get "epsilon_unit" claims) = "per " ^ table.unit)
    "the words say something else";
  (epsilon, audited)

(* prior times loss, over one denominator. *)
let costs table =
  let m = table.outputs in
  let prior, p = over_one_power (real table "prior") in
  let loss, c = over_one_power (real table "loss") in
  let positive = Array.for_all (fun v -> Z.sign v >= 0) in
  let mass = Q.make (Array.fold_left Z.add Z.zero prior) p in
  let billionth = Q.of_ints 1 1_000_000_000 in
  refuse (positive prior && positive loss && Q.leq (Q.abs (Q.sub mass Q.one)) billionth)
    "the prior is no law, or a loss is negative";
  (Array.mapi (fun i l -> Z.mul prior.(i / m) l) loss, Z.mul p c)

let check_loss table epsilon =
  let m = table.outputs and weights = whole table "weights" in
  let billionth = Q.of_ints 1 1_000_000_000 in
  let stated = Q.of_float (number "loss" table.claims) in
  let bound =
    match Json.get "lower_bound" table.claims with
    | Json.Word "null" -> None
    | v -> Some (Q.of_float (Json.number v))
  in
  let said = Json.get "gap" table.claims in
  let below exact =
    let good =
      match (bound, said) with
      | None, _ -> said = Json.Word "null"
      | Some b, _ when Q.sign b <= 0 && Q.gt exact b -> said = Json.Text "\"infinite\""
      | Some b, Json.Number _ ->
          refuse (Q.leq b (Q.mul exact (Q.add Q.one billionth))) "the lower bound is above the loss";
          let gap = if Q.leq exact b then Q.zero else Q.div (Q.sub exact b) b in
          let off = Q.abs (Q.sub (Q.of_float (Json.number said)) gap) in
          Q.leq off (Q.mul (Q.of_ints 4 1_000_000_000) (Q.add Q.one gap))
      | Some _, _ -> false
    in
    refuse good "the gap is another one" in
  if not (List.mem_assoc "loss" table.arrays) then (below stated; "stated")
  else
    let costs, unit = costs table in
    let sum = ref Z.zero in
    Array.iteri (fun i c -> sum := Z.add !sum (Z.mul c (Z.of_int64 weights.(i)))) costs;
    let exact = Q.make !sum (Z.mul unit (Z.shift_left Z.one 62)) in
    refuse (Q.leq (Q.abs (Q.sub exact stated)) (Q.mul exact billionth)) "the loss is another one";
    below exact;
    match bound with
    | None -> "none"
    | Some b ->
        let proof = Json.has "bound_pairs" table.claims in
        let multipliers, l = if proof then over_one_power (real table "bound_multipliers") else ([||], Z.one) in
        let pairs = if proof then whole table "bound_pairs" else [||] in
        let common = Z.mul unit l in
        let rows =
          List.init table.records (fun x ->
              List.init m (fun y -> Z.mul l costs.((x * m) + y)))
        in
        let steps =
          List.init (Array.length pairs / 2) (fun e ->
              ( (Z.of_int64 pairs.(2 * e), Z.of_int64 pairs.((2 * e) + 1)),
                List.init m (fun y -> Z.mul unit multipliers.((e * m) + y)) ))
        in
        let points, metric, _ = points table in
        let epsilon_num, epsilon_den = fraction epsilon in
        let bare = { Checked.epsilon_num; epsilon_den; metric; floors = [];
                     tiles = [ List.map (fun p -> (p, [])) (Array.to_list points) ] } in
        let rec nat n = if n = 0 then Checked.O else Checked.S (nat (n - 1)) in
        let proved = Checked.bound_ok bare (nat m) common rows steps (Q.num b) (Q.den b) in
        (* Angles are bounded from below alone here, so that a bound over them stays a statement. *)
        refuse (proved || not proof || table.kind = "angular") "the bound's proof does not prove it";
        if proved then "proved" else "stated, not proved in this file"

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
  | exception (Invalid_argument reason | Failure reason) ->
      Printf.printf "not readable: %s\n" reason;
      2
  | table -> (
      match
        let epsilon, audited = check_claims table in
        (* At epsilon 0 only equal rows pass, wherever the records are; that they are distinct shows at
           the epsilon that is claimed. *)
        refuse (Checked.accept (checked table audited)
                && (audited > 0. || Checked.accept (checked table epsilon)))
          (Printf.sprintf "rows, metric or pairs: not private at %.17g" audited);
        (epsilon, check_loss table epsilon)
      with
      | exception (Refused reason | Json.Wrong reason) ->
          Printf.printf "DOES NOT HOLD: %s\n" reason;
          1
      | epsilon, bound ->
          Printf.printf "holds: epsilon %.17g per %s over all pairs and outputs; bound: %s\n" epsilon
            table.unit bound;
          0)

let () = exit (main Sys.argv.(1))
