package bench

// A resultRow is a Result in JSON.
type resultRow struct {
	Row      string   `json:"row"`
	Measure  string   `json:"measure"`
	Against  string   `json:"against"`
	Unit     string   `json:"unit"`
	Ours     *float64 `json:"ours"`     // median; null if not measured
	Theirs   *float64 `json:"theirs"`   // median; null if the row compares no contestants
	Goal     string   `json:"goal"`     // such as ≥ 0.9, or floor
	Measured *float64 `json:"measured"` // median of the ratios of ours to theirs
	Least    *float64 `json:"least"`    // smallest ratio
	Greatest *float64 `json:"greatest"` // greatest ratio
	Rounds   int      `json:"rounds"`
	Met      *bool    `json:"met"`   // Measured reaches the goal; null for a floor
	Error    *string  `json:"error"` // why the row was not measured; null if it was
}

// newResultRow returns the row of a result. A row without rounds has no numbers.
func newResultRow(r Result) resultRow {
	row := resultRow{
		Row: r.ID, Measure: r.Measure, Against: r.Against, Unit: r.Ours.Reading.unit(), Goal: r.Goal.String(), Rounds: len(r.Rounds),
	}
	if r.Err != nil {
		text := r.Err.Error()
		row.Error = &text
		return row
	}
	if len(r.Rounds) == 0 {
		return row
	}
	ours, theirs := r.medians()
	measured, met := r.Measured(), r.Goal.met(r.Measured())
	least, greatest := r.Spread()
	row.Ours, row.Measured, row.Least, row.Greatest = &ours, &measured, &least, &greatest
	if !r.Goal.floor {
		row.Met = &met
	}
	if r.Theirs != (Score{}) {
		row.Theirs = &theirs
	}
	return row
}

// A reportRow is a Report in JSON.
type reportRow struct {
	Dir    string      `json:"dir"`
	Cores  int         `json:"cores"`
	Scale  float64     `json:"scale"` // of sizes and times, relative to those of the goals
	TookMS int64       `json:"took_ms"`
	Rows   []resultRow `json:"rows"`
	Limits []string    `json:"limits"` // sentences about the bottleneck of the store
}

// JSON returns the value that encoding/json encodes as the result of a run in dir. A row
// that was not measured has null in place of numbers.
func (r *Report) JSON(dir string) any {
	row := reportRow{Dir: dir, Cores: r.Cores, Scale: r.Scale, TookMS: r.Took.Milliseconds(), Rows: []resultRow{}, Limits: r.Limits()}
	for _, result := range r.Results {
		row.Rows = append(row.Rows, newResultRow(result))
	}
	return row
}
