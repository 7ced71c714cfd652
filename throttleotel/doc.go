// Package throttleotel shows a throttle.Transport to OpenTelemetry: metrics of every key, events on the spans of calls
// that wait, and the number of each resend. It imports the API alone; which SDK and exporter there are is the program's
// choice.
//
//	t := &throttle.Transport{
//		Limiter: throttle.NewBucket(100, 10),
//		Base:    otelhttp.NewTransport(throttleotel.Base(http.DefaultTransport)),
//	}
//	stop, err := throttleotel.Instrument("github", t, throttleotel.Options{})
//	client := &http.Client{Transport: throttleotel.Calls(t, throttleotel.Options{})}
//
// # Metrics
//
// Each measurement has the attribute throttle.policy, the name given to [Instrument], and throttle.key. The names are
// not those of a convention, because there is none for rate limits, and may still change. "By" lists further attributes.
//
//	throttle.client.requests               counter, {request}: attempts that were sent or refused, by throttle.outcome
//	throttle.client.request.time_in_queue  histogram, s: waits of the attempts that waited and were sent
//	throttle.client.waits                  counter, {request}: waits that began, by throttle.reason
//	throttle.client.queued_request.count   up-down counter, {request}: calls in line
//	throttle.client.active_request.count   up-down counter, {request}: attempts in flight
//	throttle.client.active_request.limit   up-down counter, {request}: attempts that may be in flight; not observed: no bound
//	throttle.client.load                   gauge, 1: what that follows by QueueOptions.InFlight, in its own unit
//	throttle.client.throttled_responses    counter, {response}: by http.response.status_code, and throttle.retry_after, whether
//	                                       the answer says how long to wait
//	throttle.client.failures               counter, {request}: attempts that failed, by error.type
//	throttle.client.resends                counter, {request}: attempts that were sent after the first of their call
//	throttle.client.closings               counter, {closing}: of the gate, by an answer; by throttle.reason
//	throttle.client.closed.remaining       gauge, s: how much longer the gate is closed, by throttle.reason
//	throttle.client.limit                  gauge, {unit}/s: by throttle.limit.source: config, advertised or found
//	throttle.client.tokens                 gauge, {unit}: units ready now; negative: a debt
//	throttle.client.utilization            gauge, 1: the share of a limit that is used, by throttle.reason
//	throttle.client.debt                   gauge, {unit}: what a limit has given beyond what it had, by throttle.reason
//	throttle.client.held_unit.count        up-down counter, {unit}: held of a meter and not settled, by throttle.reason
//	throttle.client.estimated_units        counter, {unit}: that settled attempts had held, by throttle.reason
//	throttle.client.settled_units          counter, {unit}: that these have cost, by throttle.reason
//	throttle.client.oldest_wait            gauge, s: how long the oldest call in line has waited
//	throttle.client.key.count              up-down counter, {key}: keys that the Transport keeps
//
// A throttle.outcome is admitted, queue_full, wait_too_long, deadline, paused, closed, canceled or error. A
// throttle.reason is one of throttle.Event. An attempt that does not have to wait is in the counters and not in the
// histogram. Gauges without a value, such as the limit of a key that has none, are not observed. Where found is below config, the
// configured limit is too high: found is what the upstream accepts.
//
// A limit has the throttle.reason of the calls that wait for it: limit, meter:tokens, or limit:shared, which has no
// throttle.key. Its utilization is that of throttle.LimitStats: of a window the part that is used; of a bucket what
// calls took since an earlier collection, so the first one has none.
//
// The recipe Metrics in examples/recipes serves them to Prometheus, through the exporter of OpenTelemetry, which makes
// throttle_client_requests_total of throttle.client.requests. docs/grafana.json is a dashboard for that.
//
// Waits alone do not show that a limit is nearly used up: calls that are spaced wait for at most one unit's time. Watch
// the utilization. What a meter's estimates are worth is the rate of settled_units by that of estimated_units: 0.35 says
// that two thirds of what is held are held in vain. Attempts that failed and cost nothing are in it.
//
// [InstrumentFleet] and [InstrumentInbound] show a fleet's limiter, and the limits of a server of your own.
//
// # Keys
//
// The first 100 keys ([Options].MaxKeys) have series of their own; all others are counted as "_other". Sums over all keys
// are exact, also of keys that the Transport has dropped meanwhile: what was sent under a key after the last collection
// before it was dropped is counted as "_other"; what it settled then is not counted. Of gauges "_other" has the least
// tokens and limit, the longest time, and the largest utilization and debt.
// A key that is not UTF-8 is shown with U+FFFD; of several that look the same then, the first has the series. With twelve
// reasons and 101 keys no instrument reaches the limit of 2,000 attribute sets that the SDK has.
//
// # Traces
//
// [Base] below otelhttp sets http.request.resend_count on the span of each attempt but the first. [Calls] around the
// Transport makes a span for each call, and with it each resend is linked to the first attempt of its call. A call that has
// waited has the event throttle.wait on its span, with throttle.reason and throttle.wait in seconds; one that was refused
// has throttle.refused. The span is that of the request's context: the one of Calls if there is one, otherwise the
// caller's own.
//
// # Cost
//
// A call that need not wait costs nothing, and one that waits two measurements; nothing is allocated. A collection takes the
// snapshot of every key, a few milliseconds of one core with 10,000 of them. There is no goroutine.
package throttleotel
