package loopback

// later is a queue of items that become due: a heap ordered by due time, then by order of insertion.
type later[T any] struct {
	items []dated[T]
	count uint64
}

type dated[T any] struct {
	due   int64
	order uint64
	what  T
}

func (a dated[T]) before(b dated[T]) bool {
	return a.due < b.due || a.due == b.due && a.order < b.order
}

// add inserts an item. It reports whether the item is the first one due now.
func (l *later[T]) add(due int64, what T) bool {
	l.count++
	l.items = append(l.items, dated[T]{due, l.count, what})
	i := len(l.items) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !l.items[i].before(l.items[up]) {
			break
		}
		l.items[i], l.items[up] = l.items[up], l.items[i]
		i = up
	}
	return i == 0
}

// next returns the time at which the first item is due. It returns false if there is none.
func (l *later[T]) next() (due int64, has bool) {
	if len(l.items) == 0 {
		return 0, false
	}
	return l.items[0].due, true
}

// take removes and returns the first item. There must be one.
func (l *later[T]) take() T {
	first, last := l.items[0].what, len(l.items)-1
	l.items[0] = l.items[last]
	l.items[last] = dated[T]{} // release the reference to the item
	l.items = l.items[:last]
	for i := 0; ; {
		smallest := i
		for _, down := range []int{2*i + 1, 2*i + 2} {
			if down < last && l.items[down].before(l.items[smallest]) {
				smallest = down
			}
		}
		if smallest == i {
			return first
		}
		l.items[i], l.items[smallest] = l.items[smallest], l.items[i]
		i = smallest
	}
}
