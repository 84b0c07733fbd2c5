package sim

// Result is what came of one run.
type Result struct {
	Scenario, Policy string
	Seed             uint64
	// Latencies are those of the measured calls in seconds, in order of their ends. One that failed counts with its deadline.
	Latencies []float32
	// Starts are when these calls arrived, in seconds since the measurement began.
	Starts []float32
	// Errors is how many calls failed, those that were refused included.
	Errors int
	// Refused is how many calls the policy sent nowhere.
	Refused int
	// Loads is how many loads of models began in the measured part.
	Loads int
	// Cold is how many calls waited for a load.
	Cold int
	// Extra is how many attempts there were beyond one for each call.
	Extra int
	// Goodput is the work of the calls that were answered within the scenario's SLO, over the fleet's capacity.
	Goodput float64
	// Critical is the share of the critical calls that were answered within the SLO.
	Critical float64

	critical, criticalInTime int
}

// add counts a call that has ended.
func (r *Result) add(f *Fleet, c *Call, o Outcome) {
	took := f.now - c.Start
	if o != OutcomeSuccess {
		r.Errors++
		took = f.Deadline
	}
	if o == OutcomeRefused {
		r.Refused++
	}
	if c.cold {
		r.Cold++
	}
	r.Extra += max(c.Attempts-1, 0)
	r.Latencies = append(r.Latencies, float32(took.Seconds()))
	r.Starts = append(r.Starts, float32((c.Start - f.From).Seconds()))
	inTime := o == OutcomeSuccess && (f.SLO == 0 || took <= f.SLO)
	if inTime {
		capacity := float64(f.Servers*f.Workers) * (f.To - f.From).Seconds()
		r.Goodput += c.Work.Seconds() / capacity
	}
	if c.Urgency == Critical {
		r.critical++
		if inTime {
			r.criticalInTime++
		}
		r.Critical = float64(r.criticalInTime) / float64(r.critical)
	}
}

// Run runs a policy, by its name (see KindOf), in a scenario. Its errors are of type *FieldError.
func Run(sc *Scenario, policy string, seed uint64) (*Result, error) {
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	k, err := KindOf(policy)
	if err != nil {
		return nil, err
	}
	return newFleet(sc, k, seed).run(), nil
}
