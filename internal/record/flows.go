package record

// maxFlows bounds what a window counts by flow.
const maxFlows = 1024

// Flows numbers the flows of a task: the messages to one queue of one subscription. Of more than 1,024 flows some have
// the same number.
type Flows struct{ Subscriptions, Queues int } // that are told apart

// FlowsOf returns the flows of so many subscriptions, with so many queues each.
func FlowsOf(subscriptions, queues int) Flows {
	subscriptions = min(max(1, subscriptions), maxFlows)
	return Flows{subscriptions, min(max(1, queues), maxFlows/subscriptions)}
}

// Of is the flow of messages that are sent to a queue and received by a subscription. That of subscription 0 is the
// number of the queue.
func (f Flows) Of(subscription, queue int) int {
	return subscription%f.Subscriptions*f.Queues + queue%f.Queues
}
