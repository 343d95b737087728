(** What each main theorem rests on (and with it every lemma that it uses).  Only the standard
    library's real numbers may come up. *)

From Panda Require Import Fixed Angle Distance Nats Triangle Check Given Sampler Bound BoundFile
  Processing Balls Mesh Cover Lattice MeshFile Coins Star Edges.

Print Assumptions haversine_formula.
Print Assumptions check_private.
Print Assumptions check_stochastic.
Print Assumptions accept_private.
Print Assumptions given_metric.
Print Assumptions sampler_exact.
Print Assumptions rejection_exact.
Print Assumptions weak_duality.
Print Assumptions file_bound.
Print Assumptions post_processing.
Print Assumptions remap.
Print Assumptions mixing.
Print Assumptions snapping.
Print Assumptions composition.
Print Assumptions trajectory.
Print Assumptions prior_is_free.
Print Assumptions private_prior.
Print Assumptions discrete_laplace.
Print Assumptions outside_an_event.
Print Assumptions level_law.
Print Assumptions fading.
Print Assumptions faded_balls.
Print Assumptions snapped_balls.
Print Assumptions guarantee_for_events.
Print Assumptions triangle_private.
Print Assumptions convex_private.
Print Assumptions projected.
Print Assumptions stretch.
Print Assumptions angles_add.
Print Assumptions chain.
Print Assumptions everywhere_private.
Print Assumptions coins_ratio.
Print Assumptions coins_guarantee.
Print Assumptions star_private.
Print Assumptions star_bound.
Print Assumptions star_optimal.
Print Assumptions limited_bound.
Print Assumptions shares_below_largest.
Print Assumptions edges_private.
Print Assumptions edges_stochastic.
