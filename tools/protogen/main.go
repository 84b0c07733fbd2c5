// Command protogen writes the Go code of the .proto file in a folder, as protoc would. The file may import google/protobuf/*.proto.
// Its name in descriptors is its path below -root: programs know files by it, and no two files of a program may share one.
// With -private the code differs from protoc's in one point: the descriptors go into a private registry, so that a program may also
// link another package that defines inference.*, as every Triton user's stubs do.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// A builder of messages that names no registries registers globally.
const (
	globalBuilder  = "\t\tFile: protoimpl.DescBuilder{\n"
	privateBuilder = "\t\tTypeRegistry: types,\n" + globalBuilder + "\t\t\tFileRegistry:  files,\n"
)

func main() {
	log.SetFlags(0)
	private := flag.Bool("private", false, "keep the descriptors out of the global registry")
	root := flag.String("root", "", "the folder that names of .proto files start from; DIR if empty")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: protogen [-private] [-root ROOT] DIR, a folder with one .proto file")
	}
	dir := flag.Arg(0)
	if *root == "" {
		*root = dir
	}
	if err := generate(*root, dir, *private); err != nil {
		log.Fatal(err)
	}
}

func generate(root, dir string, private bool) error {
	sources, err := filepath.Glob(filepath.Join(dir, "*.proto"))
	if err != nil || len(sources) != 1 {
		return fmt.Errorf("%s: %d .proto files, want 1", dir, len(sources))
	}
	source, err := filepath.Rel(root, sources[0])
	if err != nil {
		return err
	}
	source = filepath.ToSlash(source)
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), source)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(nil, compiled[0]),
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		files, err := run(plugin, request)
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		for _, f := range files {
			content := []byte(f.GetContent())
			if private && plugin == "protoc-gen-go" {
				if !bytes.Contains(content, []byte(globalBuilder)) {
					return fmt.Errorf("%s: generated code has no %q", plugin, globalBuilder)
				}
				content = bytes.Replace(content, []byte(globalBuilder), []byte(privateBuilder), 1)
			}
			if err := os.WriteFile(filepath.Join(root, f.GetName()), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// withImports appends a file to files, after all that it imports, as plugins want them; each file once.
func withImports(files []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	if slices.ContainsFunc(files, func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == file.Path() }) {
		return files
	}
	for i := range file.Imports().Len() {
		files = withImports(files, file.Imports().Get(i).FileDescriptor)
	}
	return append(files, protodesc.ToFileDescriptorProto(file))
}

// run runs a protoc plugin that this module's go.mod pins.
func run(plugin string, request *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return nil, err
	}
	if response.GetError() != "" {
		return nil, fmt.Errorf("%s", response.GetError())
	}
	return response.GetFile(), nil
}
