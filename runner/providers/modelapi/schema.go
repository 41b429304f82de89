package modelapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// maxSchemaDepth is the deepest nesting of a schema that a request contains. Each level is
// read once for every level above it.
const maxSchemaDepth = 64

// The rules that a schema can break.
const (
	objectRule = "the schema of an input is one JSON object of type object"
	unionRule  = "the schema of an input has no enum or const at the top level, and its anyOf, oneOf and allOf there contain objects only"
	depthRule  = "a schema nests at most 64 levels"
)

// errTooDeep says that a schema nests too many levels.
var errTooDeep = errors.New("the schema nests too many levels")

// A schemaMember is a member of a JSON object, in order.
type schemaMember struct {
	key   string
	value json.RawMessage
}

// AcceptedSchema returns the schema of an input in a form that model servers accept: an object
// with properties, without a union at the top level, in which each array has items and no
// schema is a boolean. The branches of a union at the top level become properties of the
// object. The schema may accept more inputs than before; the registry checks each input
// against the whole schema. If there is no such form, it returns the broken rule and a
// detail. The properties keep their order, which models follow.
func AcceptedSchema(schema json.RawMessage) (accepted map[string]any, rule, detail string) {
	if len(schema) == 0 || string(bytes.TrimSpace(schema)) == "true" {
		schema = json.RawMessage("{}")
	}
	if _, ok := schemaMembers(schema); !ok {
		return nil, objectRule, fmt.Sprintf("it is %s", Excerpt(schema))
	}
	rewritten, err := rewriteSchema(schema, maxSchemaDepth)
	if err != nil {
		return nil, depthRule, ""
	}
	members, _ := schemaMembers(rewritten) // it is still an object
	object := newObjectSchema()
	if rule, detail := object.merge(members, true); rule != "" {
		return nil, rule, detail
	}
	return object.members(), "", ""
}

// An objectSchema is the schema of an input while it is made.
type objectSchema struct {
	rest       map[string]any
	properties []schemaMember
	required   []string
}

func newObjectSchema() *objectSchema { return &objectSchema{rest: map[string]any{}} }

// members returns the members of the schema.
func (o *objectSchema) members() map[string]any {
	o.rest["type"], o.rest["properties"] = "object", encodeMembers(o.properties)
	if len(o.required) > 0 {
		o.rest["required"] = o.required
	}
	return o.rest
}

// merge adds the members of a schema. With keep it adds those that describe the whole
// object; for a branch of a union it adds the properties alone. It returns the rule that
// the schema breaks.
func (o *objectSchema) merge(members []schemaMember, keep bool) (rule, detail string) {
	for _, m := range members {
		switch m.key {
		case "type":
			if !isObjectType(m.value) {
				return objectRule, fmt.Sprintf("its type is %s", m.value)
			}
		case "properties":
			properties, _ := schemaMembers(m.value)
			o.addProperties(properties)
		case "required":
			var names []string
			if keep && json.Unmarshal(m.value, &names) == nil {
				o.require(names)
			}
		case "$ref":
			return objectRule, fmt.Sprintf("it is the reference %s", m.value)
		case "enum", "const":
			return unionRule, fmt.Sprintf("it has %s", m.key)
		case "not":
		case "anyOf", "oneOf", "allOf":
			if rule, detail := o.mergeUnion(m, keep && m.key == "allOf"); rule != "" {
				return rule, detail
			}
		default:
			if keep {
				o.rest[m.key] = m.value
			}
		}
	}
	return "", ""
}

// mergeUnion adds the branches of a union. The names that a branch requires are required
// if every branch applies.
func (o *objectSchema) mergeUnion(union schemaMember, all bool) (rule, detail string) {
	var branches []json.RawMessage
	if json.Unmarshal(union.value, &branches) != nil {
		return unionRule, fmt.Sprintf("its %s is no array", union.key)
	}
	for _, branch := range branches {
		members, ok := schemaMembers(branch)
		if ref := slices.ContainsFunc(members, func(m schemaMember) bool { return m.key == "$ref" }); !ok || ref {
			return unionRule, fmt.Sprintf("its %s has %s", union.key, Excerpt(branch))
		}
		inner := newObjectSchema()
		if rule, detail := inner.merge(members, true); rule != "" {
			return unionRule, detail
		}
		if o.addProperties(inner.properties); all {
			o.require(inner.required)
		}
	}
	return "", ""
}

// addProperties adds properties. A property that is known with another schema accepts
// both.
func (o *objectSchema) addProperties(properties []schemaMember) {
	for _, p := range properties {
		i := slices.IndexFunc(o.properties, func(known schemaMember) bool { return known.key == p.key })
		switch {
		case i < 0:
			o.properties = append(o.properties, p)
		case !bytes.Equal(o.properties[i].value, p.value):
			o.properties[i].value = slices.Concat([]byte(`{"anyOf":[`), o.properties[i].value, []byte(","), p.value, []byte("]}"))
		}
	}
}

// require adds names to the required properties.
func (o *objectSchema) require(names []string) {
	for _, name := range names {
		if !slices.Contains(o.required, name) {
			o.required = append(o.required, name)
		}
	}
}

// isObjectType reports whether the type of a schema is object, or a list with object.
func isObjectType(value json.RawMessage) bool {
	var one string
	var list []string
	return json.Unmarshal(value, &one) == nil && one == "object" || json.Unmarshal(value, &list) == nil && slices.Contains(list, "object")
}

// rewriteSchema returns a schema with an object in place of each other value, such as a
// boolean schema, and with items in each array. It returns an error if the schema nests more than depth levels.
func rewriteSchema(schema json.RawMessage, depth int) (json.RawMessage, error) {
	if depth == 0 {
		return nil, errTooDeep
	}
	switch string(bytes.TrimSpace(schema)) {
	case "false":
		return json.RawMessage(`{"not":{}}`), nil
	}
	members, ok := schemaMembers(schema)
	if !ok {
		return json.RawMessage("{}"), nil
	}
	array, items := false, false
	for i, m := range members {
		rewritten, err := rewriteMember(m, depth-1)
		if err != nil {
			return nil, err
		}
		members[i].value = rewritten
		array = array || m.key == "type" && bytes.Contains(m.value, []byte(`"array"`))
		items = items || m.key == "items"
	}
	if array && !items {
		members = append(members, schemaMember{"items", json.RawMessage("{}")})
	}
	return encodeMembers(members), nil
}

// rewriteMember rewrites the schemas in one member of a schema.
func rewriteMember(m schemaMember, depth int) (json.RawMessage, error) {
	switch m.key {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		named, _ := schemaMembers(m.value)
		for i, n := range named {
			rewritten, err := rewriteSchema(n.value, depth)
			if err != nil {
				return nil, err
			}
			named[i].value = rewritten
		}
		return encodeMembers(named), nil
	case "anyOf", "oneOf", "allOf", "prefixItems":
		return rewriteList(m.value, depth)
	case "items":
		// An array of schemas is the form of old dialects for items in order.
		list, err := rewriteList(m.value, depth)
		if err != nil || !bytes.HasPrefix(bytes.TrimSpace(m.value), []byte("[")) {
			return rewriteSchema(m.value, depth)
		}
		return slices.Concat([]byte(`{"anyOf":`), list, []byte("}")), nil
	case "not", "if", "then", "else", "contains", "propertyNames":
		return rewriteSchema(m.value, depth)
	case "additionalProperties":
		if bytes.HasPrefix(bytes.TrimSpace(m.value), []byte("{")) {
			return rewriteSchema(m.value, depth)
		}
	}
	return m.value, nil
}

// rewriteList rewrites each schema of an array. It returns any other value unchanged.
func rewriteList(value json.RawMessage, depth int) (json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		return value, nil
	}
	for i, schema := range list {
		rewritten, err := rewriteSchema(schema, depth)
		if err != nil {
			return nil, err
		}
		list[i] = rewritten
	}
	data, _ := json.Marshal(list) // the elements were decoded from JSON
	return data, nil
}

// schemaMembers returns the members of a JSON object in order, or false for any other
// text.
func schemaMembers(object json.RawMessage) ([]schemaMember, bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var members []schemaMember
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, false
		}
		name, _ := key.(string) // a key is a string
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		members = append(members, schemaMember{name, value})
	}
	return members, true
}

// encodeMembers returns a JSON object with the members in order.
func encodeMembers(members []schemaMember) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(m.key) // encoding a string never fails
		b.Write(key)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}
