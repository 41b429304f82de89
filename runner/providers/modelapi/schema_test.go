package modelapi_test

import (
	"encoding/json"
	"testing"

	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// A schema, whatever its bytes, becomes an object with properties or breaks a rule.
func FuzzAcceptedSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":true,"b":{"type":"array"}},"anyOf":[{"required":["a"]},{"properties":{"a":{}}}],"allOf":[{}]}`))
	f.Add([]byte(`{"items":[{"items":[true]}],"$ref":"#"}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		if !json.Valid(schema) {
			return // the registry has compiled each schema
		}
		accepted, rule, _ := modelapi.AcceptedSchema(schema)
		if (accepted == nil) == (rule == "") {
			t.Fatalf("AcceptedSchema(%s) = %v, %q, want one of them", schema, accepted, rule)
		}
		if rule != "" {
			return
		}
		data, err := json.Marshal(accepted)
		body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"a","parameters":` + string(data) + `}}]}`
		if err == nil {
			err = providerstest.CheckOpenAIChat([]byte(body))
		}
		if err != nil {
			t.Fatalf("AcceptedSchema(%s) = %s: %v", schema, data, err)
		}
	})
}
