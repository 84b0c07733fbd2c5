package sim

// Quantile returns the q-quantile, 0 to 1, of values in ascending order; 0 if there are none.
func Quantile(sorted []float32, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
}
