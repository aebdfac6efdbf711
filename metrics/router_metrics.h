// Metrics of routers. Their series grow neither with workers nor with clients.
//
// Thread safety: constants.
#pragma once

#include "metrics/metric_row.h"

namespace baton::metric_row {

inline constexpr MetricDeclaration kRouterMetrics[] = {
    Counter(kRequests, "baton_requests_total", "requests",
            "Requests that have ended, by API method and status code. Refused ones count too. A "
            "request with a list of prompts counts once for each prompt.",
            Labels{MetricLabel{"endpoint", kEndpointNames}, kCode},
            {.vllm = "vllm:request_success_total", .sglang = "sglang:num_requests_total"}),
    Counter(kRefused, "baton_requests_refused_total", "requests",
            "Requests that ended with an error before their first token, because the router or the "
            "workers refused them. limit: too many at once, or a tenant's limit. overload: it "
            "would have missed its deadline. no_worker: no usable worker. no_room: workers were "
            "full. invalid: a wrong field, or a request that no worker takes. shutdown: the router "
            "was ending. unauthorized: no valid key or certificate.",
            Labels{MetricLabel{"reason", kRefusalNames}}),
    Gauge(kRequestsInFlight, "baton_requests_in_flight", "requests",
          "Requests that the router serves now."),
    Gauge(kRequestsWaiting, "baton_requests_waiting", "requests",
          "Requests that wait for their first token now."),
    Histogram(kTimeToFirstToken, "baton_time_to_first_token_seconds", "seconds",
              "Time from the arrival of a request to its first token.", kLatencies, Labels{},
              {.vllm = "vllm:time_to_first_token_seconds",
               .sglang = "sglang:time_to_first_token_seconds"}),
    Histogram(kInterToken, "baton_inter_token_seconds", "seconds",
              "Time between two messages with tokens of one answer, divided by the tokens in the "
              "second message. It is counted once for each of these tokens.",
              kTokenTimes, Labels{},
              {.vllm = "vllm:inter_token_latency_seconds",
               .sglang = "sglang:inter_token_latency_seconds"}),
    Histogram(kRequestSeconds, "baton_request_seconds", "seconds",
              "Time from the arrival of a request to its end, if the answer is complete.",
              kWholeTimes, Labels{},
              {.vllm = "vllm:e2e_request_latency_seconds",
               .sglang = "sglang:e2e_request_latency_seconds"}),
    Histogram(kTokenizeSeconds, "baton_tokenize_seconds", "seconds",
              "Time from the arrival of a request until its prompt is tokenised. Waiting for a "
              "text thread is included.",
              kShortTimes),
    Counter(
        kPromptTokens, "baton_prompt_tokens_total", "tokens",
        "Prompt tokens of complete answers, by the source of their KV. computed: by the model. "
        "cached: in the cache of the decode worker. transferred: in the cache of the prefill "
        "worker. pulled: in the cache of a third worker, pulled before. Each token counts once.",
        Labels{MetricLabel{"source", kPromptSourceNames}},
        {.vllm = "vllm:prompt_tokens_total", .sglang = "sglang:prompt_tokens_total"}),
    Counter(kAvoidablePromptTokens, "baton_avoidable_prompt_tokens_total", "tokens",
            "Prompt tokens of complete answers that were computed although another worker had them "
            "cached. For each request: the largest number of prompt tokens, in whole blocks, that "
            "one usable worker had cached according to the index when the request was routed. From "
            "this, the prompt tokens that were not computed are subtracted. At least 0."),
    Counter(kOutputTokens, "baton_output_tokens_total", "tokens",
            "Generated tokens sent to clients.", Labels{},
            {.vllm = "vllm:generation_tokens_total", .sglang = "sglang:generation_tokens_total"}),
    Histogram(kRouteSeconds, "baton_route_seconds", "seconds",
              "Time to choose the workers of a request.", kShortTimes),
    Histogram(kRouteEstimateRatio, "baton_route_estimate_ratio", "ratio",
              "Time to the first token that was estimated when the request was routed, divided by "
              "the measured time. Only requests whose first route led to the first token count.",
              kRatios),
    Counter(kRoutes, "baton_routes_total", "routes",
            "Routes chosen, by the worker that computes the prompt. A request that moves to "
            "another worker has several.",
            Labels{MetricLabel{"prefill", kPrefillPlaceNames}}),
    Counter(kRoutePulls, "baton_route_pulls_total", "pulls",
            "Prefix pulls that the router asked for. nothing: the receiver lacked nothing, or the "
            "source no longer had the prefix.",
            Labels{MetricLabel{"outcome", kPullOutcomeNames}}),
    Counter(kRequestWorkerLosses, "baton_request_worker_losses_total", "losses",
            "How often a request lost a worker, by the worker's role in the request.",
            Labels{MetricLabel{"role", kPrefillPlaceNames}}),
    Counter(kClientStalls, "baton_client_stalls_total", "requests",
            "Answers over gRPC that ended because their client read too slowly."),
    Counter(kIgnoredFields, "baton_ignored_fields_total", "fields",
            "Fields of requests over HTTP that the router does not know and ignored."),
    Gauge(kWorkers, "baton_workers", "workers",
          "Registered workers, by role and state. A worker in several states counts as the last "
          "one that applies: draining, unreachable, silent.",
          Labels{MetricLabel{"role", kRoleNames}, MetricLabel{"state", kWorkerStateNames}}),
    Counter(kFleetChanges, "baton_fleet_changes_total", "changes",
            "Changes of the fleet: how often a worker joined, left, and so on.",
            Labels{MetricLabel{"change", kFleetChangeNames}}),
    Counter(kHeartbeats, "baton_heartbeats_total", "heartbeats",
            "Heartbeats of workers that arrived. failed: always 0 at a router.",
            Labels{MetricLabel{"outcome", kHeartbeatOutcomeNames}}),
    Gauge(kIndexUnits, "baton_index_units", "units",
          "Distinct units in the index of the workers' caches. A unit is a run of 16 tokens with "
          "all tokens before it, or a prompt chunk."),
    Gauge(kIndexCapacity, "baton_index_capacity_units", "units",
          "Largest number of units that the index can hold."),
    Gauge(kIndexMemberships, "baton_index_memberships", "pairs",
          "Pairs of a unit and a worker that has it."),
    Gauge(kIndexPredicted, "baton_index_predicted_units", "units",
          "Units that finished requests have left on workers, and that no KV event has reported "
          "yet."),
    Gauge(kIndexBytes, "baton_index_bytes", "bytes", "Memory that the index uses."),
    Counter(kIndexRefused, "baton_index_refused_units_total", "units",
            "Units that were dropped because the index was full."),
    Counter(kIndexGaps, "baton_index_gaps_total", "gaps",
            "How often KV events of a worker were missing. The index then asks for a snapshot."),
    Counter(kIndexSnapshots, "baton_index_snapshots_total", "snapshots",
            "Snapshots of workers' caches that were applied."),
    Gauge(kIndexUnfollowed, "baton_index_unfollowed_workers", "workers",
          "Workers whose KV events the index does not follow now."),
    Counter(kLogLinesDropped, "baton_log_lines_dropped_total", "lines",
            "Lines that the rate limit kept out of the log."),
};

}  // namespace baton::metric_row
