package record

// maxFlows limits the flows that a window counts.
const maxFlows = 1024

// Flows numbers the flows of a task: the messages to one queue of one subscription. With more than maxFlows flows,
// several share a number.
type Flows struct{ Subscriptions, Queues int } // that have distinct numbers

// FlowsOf returns the flows of a number of subscriptions with a number of queues each.
func FlowsOf(subscriptions, queues int) Flows {
	subscriptions = min(max(1, subscriptions), maxFlows)
	return Flows{subscriptions, min(max(1, queues), maxFlows/subscriptions)}
}

// Of returns the number of the flow from a queue to a subscription. For subscription 0 it is the number of the queue.
func (f Flows) Of(subscription, queue int) int {
	return subscription%f.Subscriptions*f.Queues + queue%f.Queues
}
