package report

import (
	"math"
	"strconv"
)

// axis maps values to a stretch of pixels.
type axis struct {
	log      bool
	min, max float64 // of the values
	from, to float64 // pixels
}

// at returns where a value stands. Values beyond the ends stand at the ends.
func (a axis) at(v float64) float64 {
	v = min(max(v, a.min), a.max)
	share := (v - a.min) / (a.max - a.min)
	if a.log {
		share = math.Log(v/a.min) / math.Log(a.max/a.min)
	}
	return a.from + share*(a.to-a.from)
}

// tick is a mark on an axis. Minor ones have no label.
type tick struct {
	At    float64
	Label string
}

// ticks returns the marks of the axis, labelled by label.
func (a axis) ticks(label func(v float64) string) []tick {
	var marks []tick
	add := func(v float64, named bool) {
		if v < a.min*(1-1e-9) || v > a.max*(1+1e-9) {
			return
		}
		t := tick{At: a.at(v)}
		if named {
			t.Label = label(v)
		}
		marks = append(marks, t)
	}
	if !a.log {
		step := niceStep((a.max - a.min) / 6)
		for i := math.Ceil(a.min / step); i*step <= a.max*(1+1e-9); i++ {
			add(i*step, true)
		}
		return marks
	}
	// Between the powers of ten, 2 and 5 have labels too if there is room.
	few := a.max/a.min < 2e3
	for e := math.Floor(math.Log10(a.min)); math.Pow(10, e) <= a.max*(1+1e-9); e++ {
		for m := 1.; m < 10; m++ {
			add(m*math.Pow(10, e), m == 1 || few && (m == 2 || m == 5))
		}
	}
	return marks
}

// niceStep returns the smallest of 1, 2, 5, 10, ... (times a power of ten) that is at least v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// niceBelow returns the largest of 1, 2, 5 (times a power of ten) that is at most v.
func niceBelow(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*power <= v*(1+1e-9) {
			return m * power
		}
	}
	return power
}

// seconds writes a time in seconds with the unit that suits it.
func seconds(v float64) string {
	if v != 0 && v < 1 {
		return number(v*1000) + " ms"
	}
	return number(v) + " s"
}

// share writes a share in per cent.
func share(v float64) string { return number(v*100) + " %" }

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
