package stats

// leastBimodal is how many repetitions it takes to tell two groups from chance.
const leastBimodal = 6

// parted are, by the size of a sample, the shares of variance that the best split into two exceeds in 1 of 100 samples of one mode: the greatest of
// those of normal, uniform and exponential ones, by simulation (20,000 samples of each).
var parted = []struct {
	n     int
	share float64
}{{6, 0.981}, {8, 0.964}, {10, 0.949}, {15, 0.910}, {20, 0.888}, {30, 0.865}}

// Bimodal tells whether a sample falls into two groups: whether the best split into two, each of at least two numbers and a fifth of all, explains
// more of the variance than one mode would in 99 of 100 samples (Engelman and Hartigan 1969). A single outlier is no group. Of fewer than six
// numbers nothing is said.
func Bimodal(xs []float64) bool {
	return len(xs) >= leastBimodal && split(Sorted(xs)) > critical(len(xs))
}

// critical interpolates in parted.
func critical(n int) float64 {
	for i, p := range parted {
		if n <= p.n && i > 0 {
			before := parted[i-1]
			return before.share + (p.share-before.share)*float64(n-before.n)/float64(p.n-before.n)
		}
	}
	return parted[len(parted)-1].share
}

// split is the greatest share of a sorted sample's variance that two groups explain.
func split(sorted []float64) float64 {
	n := len(sorted)
	least := max(2, (n+4)/5)
	mean := average(sorted)
	total := 0.0
	for _, x := range sorted {
		total += (x - mean) * (x - mean)
	}
	if total == 0 {
		return 0
	}
	best, below := 0.0, 0.0
	for k := 1; k <= n-least; k++ {
		below += sorted[k-1] - mean
		if k >= least {
			best = max(best, below*below*float64(n)/float64(k*(n-k)))
		}
	}
	return best / total
}
