// Package strictjson decodes configuration. Unlike encoding/json it matches keys by their exact spelling, reports keys
// that nothing reads, rejects duplicate keys, and names the path of whatever is wrong.
package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Error says what is wrong, where.
type Error struct {
	Path      string // such as "ring.replicas"; empty for the document itself
	Got, Want string
}

// Error implements error.
func (e *Error) Error() string {
	path := e.Path
	if path == "" {
		path = "the document"
	}
	return fmt.Sprintf("%s is %s, want %s", path, e.Got, e.Want)
}

// Field is one key of an object and its value.
type Field struct {
	Key   string
	Value json.RawMessage
}

// Object splits a JSON object into its fields, in order. A key that stands twice is an error. path is where the object stands.
func Object(data []byte, path string) ([]Field, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, &Error{path, got(data), "an object"}
	}
	var fields []Field
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		key, ok := tok.(string)
		if err != nil || !ok {
			return nil, syntax(path, err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, syntax(Join(path, key), err)
		}
		if seen[key] {
			return nil, &Error{Join(path, key), "given twice", "one value"}
		}
		seen[key] = true
		fields = append(fields, Field{key, value})
	}
	if _, err := dec.Token(); err != nil {
		return nil, syntax(path, err)
	}
	if dec.More() {
		return nil, &Error{path, "followed by more text", "one value"}
	}
	return fields, nil
}

// Decode fills v, a pointer, from data. What data does not mention keeps its value, and so does what is null there. Keys that v has no
// field for are returned by their paths; wrong values are an *Error. path is where data stands.
func Decode(data []byte, path string, v any) (unknown []string, err error) {
	d := decoder{}
	if err := d.value(data, path, reflect.ValueOf(v).Elem()); err != nil {
		return nil, err
	}
	return d.unknown, nil
}

// Join appends a key to a path.
func Join(path, key string) string {
	if strings.ContainsAny(key, "./ \"") || key == "" {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

type decoder struct{ unknown []string }

func (d *decoder) value(data json.RawMessage, path string, v reflect.Value) error {
	if string(bytes.TrimSpace(data)) == "null" {
		return nil
	}
	if v.CanAddr() {
		switch v.Addr().Interface().(type) {
		case json.Unmarshaler, encoding.TextUnmarshaler:
			return d.leaf(data, path, v)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(data, path, v.Elem())
	case reflect.Struct:
		return d.object(data, path, v)
	case reflect.Map:
		return d.dict(data, path, v)
	case reflect.Slice:
		return d.list(data, path, v)
	}
	return d.leaf(data, path, v)
}

func (d *decoder) object(data json.RawMessage, path string, v reflect.Value) error {
	fields, err := Object(data, path)
	if err != nil {
		return err
	}
	for _, f := range fields {
		field, ok := fieldOf(v, f.Key)
		if !ok {
			d.unknown = append(d.unknown, Join(path, f.Key))
			continue
		}
		if err := d.value(f.Value, Join(path, f.Key), field); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) dict(data json.RawMessage, path string, v reflect.Value) error {
	fields, err := Object(data, path)
	if err != nil {
		return err
	}
	m := reflect.MakeMapWithSize(v.Type(), len(fields))
	for _, f := range fields {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(f.Value, Join(path, f.Key), e); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(f.Key), e)
	}
	v.Set(m)
	return nil
}

func (d *decoder) list(data json.RawMessage, path string, v reflect.Value) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return &Error{path, got(data), "a list"}
	}
	s := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if err := d.value(item, fmt.Sprintf("%s[%d]", path, i), s.Index(i)); err != nil {
			return err
		}
	}
	v.Set(s)
	return nil
}

func (d *decoder) leaf(data json.RawMessage, path string, v reflect.Value) error {
	err := json.Unmarshal(data, v.Addr().Interface())
	if err == nil {
		return nil
	}
	want := describe(v)
	if w, ok := err.(interface{ Want() string }); ok {
		want = w.Want()
	}
	return &Error{path, got(data), want}
}

func describe(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer of at least 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a " + v.Type().Name()
}

// fieldOf returns the field of a struct, or of one that is embedded in it, with the JSON name key.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" && name == key {
			return v.Field(i), true
		}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			if field, ok := fieldOf(v.Field(i), key); ok {
				return field, true
			}
		}
	}
	return reflect.Value{}, false
}

// got shortens a JSON text to what fits in a message.
func got(data []byte) string {
	const most = 60
	s := strings.TrimSpace(string(data))
	if s == "" {
		return "empty"
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func syntax(path string, err error) error {
	if err == nil {
		return &Error{path, "malformed", "valid JSON"}
	}
	return &Error{path, "malformed (" + err.Error() + ")", "valid JSON"}
}
