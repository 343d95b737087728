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
  | "graph" ->
      ( Array.mapi (fun i far -> List.map Z.of_int (i :: Array.to_list far)) (Lazy.force table.apart),
        Checked.Given (Z.shift_left Z.one 30), None )
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
  let k = table.records and floor = Array.map Z.of_int64 table.floors in
  let points, metric, place = points table in
  let row x =
    let above (y, w) = if Int64.equal w table.floors.(y) then None else Some (Z.of_int y, Z.of_int64 w) in
    List.filter_map above (table.stored x)
  in
  let records = Array.init k (fun x -> (points.(x), row x)) in
  let all = Array.init k Fun.id in
  let tiles = match place with Some place -> cut place all | None -> [ Array.to_list all ] in
  let epsilon_num, epsilon_den = fraction epsilon in
  { Checked.epsilon_num; epsilon_den; metric; floors = Array.to_list floor;
    floor_at = (fun y -> floor.(Z.to_int y));
    tiles = List.map (List.map (fun x -> records.(x))) tiles }

(* A row written out. *)
let full table x =
  let row = Array.map Z.of_int64 table.floors in
  List.iter (fun (y, w) -> row.(y) <- Z.of_int64 w) (table.stored x);
  Array.to_list row

(* What holds along every edge of a graph holds along every path, and so for all pairs. *)
let edges_hold table epsilon =
  let num, den = fraction epsilon in
  Checked.edges_ok num den (full table) (List.map (fun (i, j, steps) -> ((i, j), Z.of_int steps)) table.edges)

(* ---- meshes *)

let earth = Z.of_int 63710088 (* over 10^4 km *)

(* Every record is where its vertex is, to 1e-9 km, in float64. *)
let check_places table middle spacing vertices =
  let degrees a = a *. Float.pi /. 180. in
  let middle_lat, middle_lon = middle in
  refuse (Float.abs middle_lat <= 90. && middle_lon >= -180. && middle_lon <= 360.) "the middle is no place";
  let s = sin (degrees middle_lat) and c = cos (degrees middle_lat) in
  let sin_lon = sin (degrees middle_lon) and cos_lon = cos (degrees middle_lon) in
  let lat = real table "lat" and lon = real table "lon" in
  Array.iteri
    (fun x (i, j) ->
      let side = spacing /. 6371.0088 in
      let u = side *. (Int64.to_float i +. (Int64.to_float j /. 2.)) in
      let v = side *. Int64.to_float j *. sqrt 0.75 in
      let ray = [ (c *. cos_lon) -. (u *. sin_lon) -. (v *. s *. cos_lon);
                  (c *. sin_lon) +. (u *. cos_lon) -. (v *. s *. sin_lon); s +. (v *. c) ] in
      let length = sqrt (1. +. (u *. u) +. (v *. v)) in
      let phi = degrees lat.(x) and lambda = degrees lon.(x) in
      let own = [ cos phi *. cos lambda; cos phi *. sin lambda; sin phi ] in
      let gap = List.fold_left2 (fun sum a b -> sum +. (((a /. length) -. b) ** 2.)) 0. ray own in
      refuse (6371.0088 *. sqrt gap <= 1e-9) "a record is not where its vertex is")
    vertices

let check_mesh table epsilon =
  let mesh = Json.get "mesh" table.claims in
  let spacing = number "spacing" mesh in
  refuse (spacing > 0.) "a mesh without spacing";
  let middle =
    match Json.get "middle" mesh with
    | Json.List [ a; b ] -> (Json.number a, Json.number b)
    | _ -> raise (Refused "the middle is no place")
  in
  let flat = whole table "mesh_vertices" and inside = whole table "mesh_inside" in
  let vertices = Array.init table.records (fun x -> (flat.(2 * x), flat.((2 * x) + 1))) in
  let found = Hashtbl.create (2 * table.records) in
  let spacing_num, spacing_den = fraction spacing in
  let squared (i, j) = let i = Z.of_int64 i and j = Z.of_int64 j in Z.(add (add (mul i i) (mul i j)) (mul j j)) in
  let rows = Array.init table.records (full table) in
  Array.iteri
    (fun x v ->
      refuse (not (Hashtbl.mem found v)) "a vertex is there twice";
      let n = Z.(mul (mul spacing_num spacing_num) (of_int 100_000_000)) in
      let far = Z.mul (Z.of_int 100) (Z.mul n (squared v)) in
      refuse (Z.leq far Z.(mul (mul spacing_den spacing_den) (mul earth earth))) "a vertex is too far from the middle";
      Hashtbl.add found v rows.(x))
    vertices;
  check_places table middle spacing vertices;
  let row_at i j =
    if Z.fits_int64 i && Z.fits_int64 j then Hashtbl.find_opt found (Z.to_int64 i, Z.to_int64 j) else None
  in
  let around = [ (1, 0); (0, 1); (-1, 1); (-1, 0); (0, -1); (1, -1) ] in
  let plus (i, j) (a, b) = row_at (Z.add (Z.of_int64 i) (Z.of_int a)) (Z.add (Z.of_int64 j) (Z.of_int b)) in
  Array.iteri
    (fun x flag ->
      refuse (flag = 0L || (flag = 1L && List.for_all (fun step -> plus vertices.(x) step <> None) around))
        "a vertex is not inside")
    inside;
  let numbers, corner_unit = over_one_power (real table "mesh_area") in
  let corners = List.init (Array.length numbers / 2) (fun i -> (numbers.(2 * i), numbers.((2 * i) + 1))) in
  refuse (List.length corners > 2) "the area has fewer than three corners";
  let next = List.tl corners @ [ List.hd corners ] in
  let sides = List.map2 (fun (a, b) (c, d) -> (Z.sub c a, Z.sub d b)) corners next in
  List.iter2
    (fun (u, v) (du, dv) ->
      let left = List.map (fun (a, b) -> Z.(sub (mul du (sub b v)) (mul dv (sub a u)))) corners in
      let zeros = List.length (List.filter (Z.equal Z.zero) left) in
      refuse (List.for_all (fun l -> Z.sign l >= 0) left && zeros = 2) "the area is not convex, or clockwise")
    corners sides;
  let spans pick =
    let all = List.map (fun c -> Z.fdiv (pick c) corner_unit) corners in
    let low = List.fold_left Z.min (List.hd all) all and high = List.fold_left Z.max (List.hd all) all in
    Z.add (Z.sub high low) (Z.of_int 5)
  in
  refuse (Z.leq (Z.mul (spans fst) (spans snd)) (Z.of_int (1 lsl 24))) "the area spans too many triangles";
  let axes = List.map (fun (du, dv) -> (dv, Z.neg du)) sides @ [ (Z.zero, Z.one); (Z.one, Z.zero); (Z.one, Z.one) ] in
  let rate_num, rate_den = fraction epsilon in
  let mesh =
    { Checked.spacing_num; spacing_den; rate_num; rate_den; corner_unit; corners; axes; row_at }
  in
  refuse (Checked.mesh_ok mesh) "a triangle is missing, or the rate is exceeded in one";
  Array.iter
    (fun (i, j) ->
      let i = Z.of_int64 i and j = Z.of_int64 j in
      List.iter
        (fun e ->
          match (row_at i j, row_at (Z.add i e) j, row_at i (Z.add j e)) with
          | Some a, Some b, Some c -> refuse (Checked.complete_ok mesh i j e a b c) "the rate is exceeded in a triangle"
          | _ -> ())
        [ Z.one; Z.minus_one ])
    vertices

(* ---- balls *)

(* The distance of two records from below, over 2^128. *)
let distances table =
  let points, metric, _ = points table in
  let ready = Array.map (Checked.prepare metric) points in
  fun x y -> if x = y then Z.zero else Checked.nats_low metric Z.one Z.one ready.(x) ready.(y)

(* The law of centres and the fading of rows are proved (Balls.v); here is what is left of epsilon for
   the rows, exactly, once what the proofs ask of domain and numbers was looked at: records that
   lie in a plane, and far enough from each other for float64. *)
let check_balls table epsilon =
  let chosen = Json.get "selection" table.claims in
  let exact name = Q.of_float (number name chosen) in
  let first = exact "epsilon" and edge = exact "edge" and radius = exact "radius" in
  let flat = table.kind = "haversine" || (table.kind = "euclidean" && table.width <= 2) in
  refuse flat "balls whose records lie in no plane";
  let q n d = Q.make (Z.of_string n) (Z.of_string d) in
  let largest =
    if table.kind = "haversine" then q "63710088" "10000"
    else Array.fold_left (fun most v -> Q.max most (Q.of_float (Float.abs v))) Q.zero (real table "vectors")
  in
  let positive a = Q.is_real a && Q.sign a > 0 in
  refuse (positive first && positive edge && positive radius && number "delta" chosen = 0.) "a selection out of range";
  let second = Q.sub (Q.of_float epsilon) first in
  let left = Q.sub second edge in
  refuse (Q.sign left > 0) "centre and edge leave nothing for the rows";
  let rounded = Q.mul (q "1" "100000000000000") (Q.add largest (Q.div (q "40" "1") first)) in
  let fading = Q.add (Q.mul (q "4" "1") (Q.mul second rounded)) (q "1" "1000000000") in
  let least = Q.max (Q.mul rounded (q "100000" "1")) (Q.div (Q.mul fading (q "1000" "1")) edge) in
  let far = distances table and scale = Z.shift_left Z.one 128 in
  for x = 1 to table.records - 1 do
    for y = 0 to x - 1 do
      refuse (Q.geq (Q.make (far x y) scale) least) "two records are too near each other for balls"
    done
  done;
  left

let positive = Array.for_all (fun v -> Z.sign v >= 0)

let check_numbers table =
  List.iter
    (function _, Real a -> Array.iter (fun v -> refuse (Float.is_finite v) "not every number is finite") a
      | _ -> ())
    table.arrays;
  let epsilon = number "epsilon" table.claims in
  refuse (epsilon > 0.) "epsilon is not positive";
  epsilon

(* The losses, over one denominator: those that are given; whole powers of distances to records from below, for
   what no table can lose less of, no table can lose less; none of others. *)
let losses table =
  let power = match Json.get "power" (Json.get "loss" table.claims) with Json.Word _ -> 0. | v -> Json.number v in
  if List.mem_assoc "loss" table.arrays then Some (over_one_power (real table "loss"))
  else if power >= 1. && Float.is_integer power && List.mem_assoc "outputs" table.arrays then (
    let power = int_of_float power and far = distances table and m = table.outputs in
    let outputs = Array.map Int64.to_int (whole table "outputs") in
    Some (Array.init (table.records * m) (fun i -> Z.pow (far (i / m) outputs.(i mod m)) power),
          Z.shift_left Z.one (128 * power)))
  else None

(* The prior, over one denominator. *)
let prior ?(name = "prior") table =
  let even = Array.make table.records (1. /. float_of_int table.records) in
  let prior, p = over_one_power (if List.mem_assoc name table.arrays then real table name else even) in
  let mass = Q.make (Array.fold_left Z.add Z.zero prior) p in
  let billionth = Q.of_ints 1 1_000_000_000 in
  refuse (positive prior && Q.leq (Q.abs (Q.sub mass Q.one)) billionth) "the prior is no law";
  (prior, p)

let rec nat n = if n = 0 then Checked.O else Checked.S (nat (n - 1))

(* The records and epsilon that a bound is about, without rows. *)
let bare points metric epsilon =
  let epsilon_num, epsilon_den = fraction epsilon in
  { Checked.epsilon_num; epsilon_den; metric; floors = []; floor_at = Fun.id;
    tiles = [ List.map (fun p -> (p, [])) points ] }

let records_of table = let points, metric, _ = points table in bare (Array.to_list points) metric

(* Pairs with their multipliers, each times `unit`, written out. *)
let steps table about unit multipliers =
  let pairs = whole table (about ^ "_pairs") and starts = whole table (about ^ "_starts") in
  let columns = whole table (about ^ "_columns") in
  let written_out e =
    let row = Array.make table.outputs Z.zero in
    for i = Int64.to_int starts.(e) to Int64.to_int starts.(e + 1) - 1 do
      let y = Int64.to_int columns.(i) in
      row.(y) <- Z.add row.(y) (Z.mul unit multipliers.(i))
    done;
    Array.to_list row
  in
  List.init (Array.length pairs / 2) (fun e ->
      ((Z.of_int64 pairs.(2 * e), Z.of_int64 pairs.((2 * e) + 1)), written_out e))

(* Losses over which bounds are computed: each is a whole number of hundreds of bits, in lists. *)
let too_many table = table.large || table.records * table.outputs > 1 lsl 24

(* What multipliers prove of costs, rows over `unit`: `bound_ok` is asked for what it comes to. *)
let proved bare m unit rows steps =
  let scale = Z.shift_left Z.one 128 in
  let start = List.map (List.map (Z.mul scale)) rows in
  let least = Checked.sum (List.map Checked.least (List.fold_right (Checked.apply_step bare) steps start)) in
  if Checked.bound_ok bare (nat m) unit rows steps least (Z.mul unit scale) then Some (Q.make least (Z.mul unit scale))
  else None

(* What a limit costs (`limited_bound` of BoundFile.v): the terms' costs from below, over 2^200, and what their
   multipliers prove of them. *)
let check_terms table epsilon =
  let k = table.records and m = table.outputs in
  let found = if too_many table || (table.kind = "graph" && k > most_apart) then None else losses table in
  match found with
  | None -> "not computed: over so many losses, or over losses that are not in the file"
  | Some (loss, c) ->
      let exact = Array.map Q.of_float in
      let numbers = exact (real table "term_numbers") and kinds = whole table "term_kinds" in
      let weights = exact (real table "term_weights") and guesses = whole table "term_guesses" in
      let own, p = prior table in
      let priors = if List.mem_assoc "term_priors" table.arrays then exact (real table "term_priors") else [||] in
      let mass term x =
        match Int64.to_int kinds.((2 * term) + 1) with
        | 0 -> Q.make own.(x) p
        | j -> priors.(((j - 1) * k) + x)
      in
      let places = if List.mem_assoc "term_places" table.arrays then real table "term_places" else [||] in
      let wide = if table.kind = "haversine" then 2 else max 1 table.width in
      let others = Array.length places / wide in
      let longer = function
        | "lat", Real a -> ("lat", Real (Array.append a (Array.init others (fun i -> places.(2 * i)))))
        | "lon", Real a -> ("lon", Real (Array.append a (Array.init others (fun i -> places.((2 * i) + 1)))))
        | "vectors", Real a -> ("vectors", Real (Array.append a places))
        | other -> other
      in
      let points, metric, _ = points { table with records = k + others; arrays = List.map longer table.arrays } in
      let ready = Array.map (Checked.prepare metric) points in
      let scale = Z.shift_left Z.one 128 in
      let known = Hashtbl.create 256 in
      let far g x =
        match Hashtbl.find_opt known (g, x) with
        | Some d -> d
        | None ->
            let d = if g = x then Q.zero else Q.make (Checked.nats_high metric Z.one Z.one ready.(g) ready.(x)) scale in
            Hashtbl.add known (g, x) d;
            d
      in
      let sums = Hashtbl.create 64 and costs = Array.make (k * m) Q.zero in
      let at i = (Int64.to_int guesses.(3 * i), Int64.to_int guesses.((3 * i) + 1), Int64.to_int guesses.((3 * i) + 2)) in
      Array.iteri
        (fun i w ->
          let term, y, _ = at i in
          Hashtbl.replace sums (term, y) (Q.add w (Option.value (Hashtbl.find_opt sums (term, y)) ~default:Q.zero)))
        weights;
      let pay x y q = costs.((x * m) + y) <- Q.add costs.((x * m) + y) q in
      Array.iteri
        (fun i w ->
          let term, y, g = at i in
          let share = Q.mul numbers.(4 * term) (Q.div w (Hashtbl.find sums (term, y))) in
          let gain x =
            match kinds.(2 * term) with
            | 1L -> Q.one
            | 2L ->
                let reach = Q.mul numbers.((4 * term) + 3) (Q.of_ints 1_000_000_001 1_000_000_000) in
                if Q.leq (far g x) reach then Q.one else Q.zero
            | _ -> Q.neg (far g x)
          in
          let add x = pay x y (Q.mul (mass term x) (Q.mul share (gain x))) in
          if Q.sign share > 0 then if kinds.(2 * term) = 1L then add g else for x = 0 to k - 1 do add x done)
        weights;
      let taken = ref Q.zero and grown = ref Q.zero in
      for term = 0 to (Array.length kinds / 2) - 1 do
        let price = numbers.(4 * term) in
        taken := Q.add !taken (Q.mul price numbers.((4 * term) + 1));
        grown := Q.add !grown (Q.mul price numbers.((4 * term) + 2));
        if kinds.(2 * term) = 0L then
          Array.iteri (fun i l -> pay (i / m) (i mod m) (Q.mul price (Q.mul (mass term (i / m)) (Q.make l c)))) loss
      done;
      let multipliers, l = over_one_power (real table "term_multipliers") in
      refuse (positive multipliers) "a multiplier is negative";
      let unit = Z.mul l (Z.shift_left Z.one 200) in
      let below q = Z.mul l (Z.fdiv (Z.shift_left (Q.num q) 200) (Q.den q)) in
      let rows = List.init k (fun x -> List.init m (fun y -> below costs.((x * m) + y))) in
      let steps = steps table "term" (Z.shift_left Z.one 200) multipliers in
      match proved (records_of table epsilon) m unit rows steps with
      | None -> "none that is proved"
      | Some least ->
          let bound = Q.div (Q.sub least !taken) !grown in
          Printf.sprintf "t from %.9g on, proved" (Q.to_float bound)

(* ---- averages over points *)

(* The lattice's vertices as vectors of which the length is twice that in spacings:
   4 (i^2 + i j + j^2) = (2 i + j)^2 + 3 j^2. *)
let in_plane spacing vertices =
  let num, den = fraction spacing in
  let vector (i, j) =
    let i = Z.of_int64 i and j = Z.of_int64 j in
    List.map (Z.mul num) [ Z.add (Z.shift_left i 1) j; j; j; j ]
  in
  (List.map vector vertices, Checked.Euclidean (Z.shift_left den 1))

(* What a bound of every point is about (docs/everywhere.md): of what was given, the law and the losses that it sums
   up to over points, which must be the file's to 2 10^-12; and the costs, from below, of the averages over hats, whose
   records are the vertices with people. Costs are over one whole number. None where nothing follows. *)
let averages table epsilon =
  let k = table.records and m = table.outputs in
  let mesh = Json.get "mesh" table.claims in
  let spacing = number "spacing" mesh in
  let flat = whole table "mesh_vertices" in
  let vertices = Array.init k (fun x -> (flat.(2 * x), flat.((2 * x) + 1))) in
  let index = Hashtbl.create (2 * k) in
  Array.iteri (fun x v -> Hashtbl.replace index v x) vertices;
  let beside (i, j) (a, b) = Hashtbl.find_opt index (Int64.add i (Int64.of_int a), Int64.add j (Int64.of_int b)) in
  let given, p = prior ~name:"given_prior" table and own, q = prior table in
  let stored, t = over_one_power (if List.mem_assoc "loss" table.arrays then real table "loss" else [||]) in
  let outputs = List.mem_assoc "outputs" table.arrays in
  (* Distances lie between two whole numbers; what is given is what it is. *)
  let losses, errors, c =
    if List.mem_assoc "given_loss" table.arrays then
      let losses, c = over_one_power (real table "given_loss") in
      (losses, Array.map (fun _ -> Z.zero) losses, c)
    else if not outputs then ([||], [||], Z.one)
    else
      let points, metric, _ = points table in
      let ready = Array.map (Checked.prepare metric) points in
      let records = Array.map Int64.to_int (whole table "outputs") in
      let far side i =
        let x = i / m and y = records.(i mod m) in
        if x = y then Z.zero else side metric Z.one Z.one ready.(x) ready.(y)
      in
      let low = Array.init (k * m) (far Checked.nats_low) in
      (low, Array.mapi (fun i l -> Z.sub (far Checked.nats_high i) l) low, Z.shift_left Z.one 128)
  in
  let steps = [ (1, 0); (0, 1); (-1, 1); (-1, 0); (0, -1); (1, -1) ] in
  let hexagon x = List.filter_map (beside vertices.(x)) steps in
  let corners = Array.map Q.of_float (real table "mesh_area") in
  let count = Array.length corners / 2 in
  let inside x =
    let i, j = vertices.(x) in
    let u = Q.of_bigint (Z.of_int64 i) and v = Q.of_bigint (Z.of_int64 j) in
    List.for_all
      (fun a ->
        let b = (a + 1) mod count in
        let du = Q.sub corners.(2 * b) corners.(2 * a) and dv = Q.sub corners.((2 * b) + 1) corners.((2 * a) + 1) in
        let beyond = Q.sub (Q.mul dv (Q.sub u corners.(2 * a))) (Q.mul du (Q.sub v corners.((2 * a) + 1))) in
        let squared = Q.add (Q.mul dv dv) (Q.add (Q.mul du dv) (Q.mul du du)) in
        Q.sign beyond <= 0
        || Q.leq (Q.mul beyond beyond) (Q.mul squared (Q.make (Z.of_int 4) (Z.mul (Z.of_int 3) (Z.pow (Z.of_int 10) 12)))))
      (List.init count Fun.id)
  in
  let whose = List.filter (fun x -> Z.sign given.(x) > 0) (List.init k Fun.id) in
  let here x = let all = hexagon x in List.length all = 6 && List.for_all inside all in
  let found = Array.length losses > 0 && Array.length stored > 0 in
  if not (found && List.length whose > 1 && List.for_all here whose) then None
  else
    (* Over points: 120 times the matrix Q of methods/everywhere.py. *)
    let sums = Array.make k Z.zero and totals = Array.make (k * m) Z.zero in
    let triangle all =
      let people = List.fold_left (fun sum x -> Z.add sum given.(x)) Z.zero all in
      let pair x x' =
        let part = Z.add (Z.add given.(x) given.(x')) people in
        let part = if x = x' then Z.shift_left part 1 else part in
        sums.(x) <- Z.add sums.(x) part;
        for y = 0 to m - 1 do
          totals.((x * m) + y) <- Z.add totals.((x * m) + y) (Z.mul part losses.((x' * m) + y))
        done
      in
      if Z.sign people > 0 then List.iter (fun x -> List.iter (pair x) all) all
    in
    for x = 0 to k - 1 do
      match (beside vertices.(x) (1, 0), beside vertices.(x) (0, 1), beside vertices.(x) (1, -1)) with
      | right, up, down ->
          (match (right, up) with Some a, Some b -> triangle [ x; a; b ] | _ -> ());
          (match (right, down) with Some a, Some b -> triangle [ x; a; b ] | _ -> ())
    done;
    let near a b = Z.leq (Z.mul (Z.abs (Z.sub a b)) (Z.pow (Z.of_int 10) 12)) (Z.mul (Z.of_int 2) (Z.abs b)) in
    let every f n = List.for_all f (List.init n Fun.id) in
    let people = Array.fold_left Z.add Z.zero sums in
    let same =
      every (fun x -> near (Z.mul sums.(x) q) (Z.mul people own.(x))) k
      && every (fun i -> near (Z.mul totals.(i) t) (Z.mul (Z.mul sums.(i / m) stored.(i)) c)) (k * m)
    in
    let one = Z.shift_left Z.one 128 in
    let nats = Q.mul (Q.of_float epsilon) (Q.of_float spacing) in
    let above part = (* exp of a part of it, from above *)
      let h = Z.cdiv (Z.mul (Q.num nats) one) (Z.mul (Q.den nats) part) in
      Z.succ (Z.cdiv (Z.mul one one) (Checked.exp_neg_low h))
    in
    if not (same && Q.leq nats (Q.of_int 64)) then None
    else
      let growth = Z.mul (Z.sub (above Z.one) one) (above (Z.of_int 2)) in
      let cost x y =
        let near_by = hexagon x in
        let at v = losses.((v * m) + y) and error v = errors.((v * m) + y) in
        let twelve = Z.mul (Z.of_int 12) in
        let mean = List.fold_left (fun sum v -> Z.add sum (at v)) (Z.mul (Z.of_int 6) (at x)) near_by in
        let apart v = Z.abs (Z.sub (twelve (at v)) mean) in
        let off = List.fold_left (fun sum v -> Z.add sum (apart v)) (Z.mul (Z.of_int 4) (apart x)) near_by in
        let most = List.fold_left (fun most v -> Z.max most (error v)) (error x) near_by in
        let off = Z.add off (Z.mul (Z.of_int 240) most) in
        let low = Z.sub (Z.mul (Z.mul (Z.of_int 20) mean) (Z.mul one one)) (Z.mul growth off) in
        Z.mul given.(x) (Z.max low Z.zero)
      in
      let rows = List.map (fun x -> List.init m (cost x)) whose in
      let unit = Z.mul (Z.mul (Z.of_int 240) (Z.mul p c)) (Z.mul one one) in
      let points, metric = in_plane spacing (List.map (fun x -> vertices.(x)) whose) in
      Some (rows, unit, points, metric)

let check_loss table epsilon =
  let m = table.outputs in
  if List.mem_assoc "given_prior" table.arrays then (
    ignore (prior ~name:"given_prior" table);
    if List.mem_assoc "given_loss" table.arrays then
      refuse (Array.for_all (fun v -> v >= 0.) (real table "given_loss")) "a loss is negative");
  let proof = List.mem_assoc "bound_pairs" table.arrays in
  if proof && table.kind = "graph" && table.records > most_apart then "not computed: over so many records of a graph"
  else
  (* Distances take their time: they are computed where something is proved by them. *)
  let found = if (proof && not (too_many table)) || List.mem_assoc "loss" table.arrays then losses table else None in
  let prior, p = prior table and loss, c = Option.value found ~default:([||], Z.one) in
  refuse (positive loss) "a loss is negative";
  let costs = Array.mapi (fun i l -> Z.mul prior.(i / m) l) loss and unit = Z.mul p c in
  let multipliers, l = if proof then over_one_power (real table "bound_multipliers") else ([||], Z.one) in
  refuse (positive multipliers) "a multiplier is negative";
  if Json.has "selection" table.claims then "none for two phases"
  else if List.mem_assoc "bound_prices" table.arrays then "not computed: prices are not summed here"
  else if not proof then
    if Json.get "lower_bound" (Json.get "notes" table.claims) = Json.Word "null" then "none"
    else "stated, not proved in this file"
  else if too_many table then "not computed: over so many losses"
  else if found = None then "not computed: the losses are neither in the file nor whole powers of distances"
  else
    let about =
      if List.mem_assoc "given_prior" table.arrays then
        Option.map (fun (rows, unit, points, metric) -> (rows, unit, bare points metric epsilon)) (averages table epsilon)
      else
        let row x = List.init m (fun y -> costs.((x * m) + y)) in
        Some (List.init table.records row, unit, records_of table epsilon)
    in
    let found (rows, unit, bare) =
      proved bare m (Z.mul unit l) (List.map (List.map (Z.mul l)) rows) (steps table "bound" unit multipliers)
    in
    match Option.bind about found with
    | Some bound when Q.sign bound > 0 -> Printf.sprintf "%.9g, proved" (Q.to_float bound)
    | _ -> "none that is proved"

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
        if Json.has "selection" table.claims then (
          let left = check_balls table epsilon in
          let rows = { (checked table epsilon) with Checked.epsilon_num = Q.num left; epsilon_den = Q.den left } in
          refuse (Checked.accept rows) "the rows tell more than they may";
          (epsilon, " and outputs, rows checked, centre and fading proved", check_loss table epsilon))
        else (
          let holds = if table.kind = "graph" then edges_hold table epsilon else Checked.accept (checked table epsilon) in
          refuse holds (Printf.sprintf "rows, metric or pairs: not private at %.17g" epsilon);
          let places = Json.has "mesh" table.claims in
          if places then check_mesh table epsilon;
          (epsilon, (if places then " and outputs and all places of the area" else " and outputs"),
           check_loss table epsilon
           ^ if List.mem_assoc "term_kinds" table.arrays then "; terms: " ^ check_terms table epsilon else ""))
      with
      | exception (Refused reason | Json.Wrong reason) ->
          Printf.printf "DOES NOT HOLD: %s\n" reason;
          1
      | exception other ->
          Printf.printf "DOES NOT HOLD: %s\n" (Printexc.to_string other);
          1
      | epsilon, what, bound ->
          Printf.printf "holds: epsilon %.17g per %s over all pairs%s; bound: %s\n" epsilon table.unit what bound;
          0)

let rec every_line () =
  match input_line stdin with
  | path ->
      ignore (main path);
      flush stdout;
      every_line ()
  | exception End_of_file -> 0

let () = exit (if Sys.argv.(1) = "-" then every_line () else main Sys.argv.(1))
