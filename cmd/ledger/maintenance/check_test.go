package maintenance

import "testing"

// store check accepts the checkpoints of consumers, groups and outputs, whose formats
// differ from those of projections. It reports a checkpoint of a consumer or a
// projection that is not valid JSON.
func TestCheckpointsOfConsumersAreNoDamage(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"publish":               `{"consumers":[]}`,
		"publish/mirror":        `{}`,
		"bus/billing/calls":     "17",
		"group/$all::billing":   `{"created":"evt_01J00000000000000000000007","place":{}}`,
		"store/outputs":         `"00ff"`,
		"publish/mirror/retry":  "",
		"group/session-1::bill": `{}`,
	} {
		if err := checkCheckpoint(name, []byte(data)); err != nil {
			t.Errorf("checkpoint %s: %v, want no fault", name, err)
		}
	}
	for _, name := range []string{"group/x", "bus/x", "calls"} {
		if checkCheckpoint(name, []byte("{")) == nil {
			t.Errorf("checkpoint %s with half of JSON has no fault", name)
		}
	}
}
