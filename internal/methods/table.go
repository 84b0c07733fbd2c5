package methods

// The shapes that methods of more than one server have.
var (
	infer1  = Method{Class: Infer, Model: Path{1}, Version: Path{2}}
	stream1 = Method{Class: Infer, Model: Path{1}, Version: Path{2}, Streaming: true}
	about1  = Method{Class: Other, Model: Path{1}, Version: Path{2}}
	update1 = Method{Class: Update, Model: Path{1}, Version: Path{2}}
	load2   = Method{Class: Update, Model: Path{2}}

	// TensorFlow Serving's model_spec: name, version_label, version.value.
	inferSpec = Method{Class: Infer, Model: Path{1, 1}, Version: Path{1, 4}, VersionNumber: Path{1, 2, 1}}
	aboutSpec = Method{Class: Other, Model: Path{1, 1}, Version: Path{1, 4}, VersionNumber: Path{1, 2, 1}}
)

// openInference is the protocol of Triton, KServe, MLServer, OpenVINO Model Server and Seldon, and of TorchServe under a
// package of its own. KServe's own RepositoryModelLoad and Unload hold the name in field 1, where all others hold the
// repository's: those name no model here.
var openInference = map[string]Method{
	"ServerLive":      {},
	"ServerReady":     {},
	"ServerMetadata":  {},
	"ModelReady":      about1,
	"ModelMetadata":   about1,
	"ModelConfig":     about1,
	"ModelStatistics": about1,

	"ModelInfer":       infer1,
	"ModelStreamInfer": {Class: Infer, Model: Path{1}, Version: Path{2}, Streaming: true, Answers: true},

	"RepositoryIndex":       {},
	"RepositoryModelLoad":   load2,
	"RepositoryModelUnload": load2,

	// Field 1 of these is the name of a region, and what they read or change belongs to one server.
	"SystemSharedMemoryStatus":     {Class: Update},
	"SystemSharedMemoryRegister":   {Class: Update},
	"SystemSharedMemoryUnregister": {Class: Update},
	"CudaSharedMemoryStatus":       {Class: Update},
	"CudaSharedMemoryRegister":     {Class: Update},
	"CudaSharedMemoryUnregister":   {Class: Update},

	"TraceSetting": load2,
	"LogSettings":  {Class: Update},
}

// known holds the methods of every server, by full name.
var known = table(map[string]map[string]Method{
	"/inference.GRPCInferenceService":                            openInference,
	"/org.pytorch.serve.grpc.openinference.GRPCInferenceService": openInference,

	// MLServer
	"/inference.model_repository.ModelRepositoryService": {
		"RepositoryIndex":       {},
		"RepositoryModelLoad":   load2,
		"RepositoryModelUnload": load2,
	},

	// TorchServe
	"/org.pytorch.serve.grpc.inference.InferenceAPIsService": {
		"Ping":               {},
		"Predictions":        infer1,
		"StreamPredictions":  stream1,
		"StreamPredictions2": stream1,
	},
	"/org.pytorch.serve.grpc.management.ManagementAPIsService": {
		"DescribeModel":   about1,
		"ListModels":      {},
		"RegisterModel":   {Class: Update, Model: Path{5}},
		"ScaleWorker":     update1,
		"SetDefault":      update1,
		"UnregisterModel": update1,
	},

	// TensorFlow Serving
	"/tensorflow.serving.PredictionService": {
		"GetModelMetadata": aboutSpec,
		// All tasks of one call name the same model.
		"MultiInference": {Class: Infer, Model: Path{1, 1, 1}, Version: Path{1, 1, 4}, VersionNumber: Path{1, 1, 2, 1}},
	},
	"/tensorflow.serving.SessionService": {
		"SessionRun": inferSpec,
	},
	"/tensorflow.serving.ModelService": {
		"GetModelStatus":            aboutSpec,
		"HandleReloadConfigRequest": {Class: Update},
	},

	// Text Generation Inference Server
	"/fmaas.GenerationService": {
		"Generate":       {Class: Infer, Model: Path{1}},
		"GenerateStream": {Class: Infer, Model: Path{1}, Streaming: true},
		"Tokenize":       {Class: Infer, Model: Path{1}},
		"ModelInfo":      {Model: Path{1}},
	},

	// Riva
	"/nvidia.riva.asr.RivaSpeechRecognition": {
		"Recognize":                      {Class: Infer, Model: Path{1, 13}},
		"StreamingRecognize":             {Class: Infer, Model: Path{1, 1, 13}, Streaming: true},
		"GetRivaSpeechRecognitionConfig": {Model: Path{1}},
	},
	"/nvidia.riva.tts.RivaSpeechSynthesis": {
		// The requests name a voice, not a model; Riva picks the model.
		"GetRivaSynthesisConfig": {Model: Path{1}},
	},
	"/nvidia.riva.nlp.RivaLanguageUnderstanding": {
		"ClassifyText":     {Class: Infer, Model: Path{3, 1}},
		"ClassifyTokens":   {Class: Infer, Model: Path{4, 1}},
		"TransformText":    {Class: Infer, Model: Path{3, 1}},
		"PunctuateText":    {Class: Infer, Model: Path{3, 1}},
		"GetRivaNLPConfig": {Model: Path{1}},
	},
	"/nvidia.riva.nmt.RivaTranslation": {
		"TranslateText":                    {Class: Infer, Model: Path{2}},
		"StreamingTranslateSpeechToText":   {Class: Infer, Model: Path{1, 2, 3}, Streaming: true},
		"StreamingTranslateSpeechToSpeech": {Class: Infer, Model: Path{1, 3, 3}, Streaming: true},
		"ListSupportedLanguagePairs":       {Model: Path{1}},
	},

	// ModelMesh
	"/mmesh.ModelMesh": {
		"registerModel":   {Class: Update, Model: Path{1}},
		"unregisterModel": {Class: Update, Model: Path{1}},
		"ensureLoaded":    {Class: Update, Model: Path{1}},
		"getModelStatus":  {Model: Path{1}},
		"setVModel":       {Class: Update, Model: Path{2}}, // the concrete model that the alias is to stand for
		"deleteVModel":    {Class: Update},
		"getVModelStatus": {},
	},

	// BentoML
	"/bentoml.grpc.v1.BentoService":       {"Call": {Class: Infer, Model: Path{1}}},
	"/bentoml.grpc.v1alpha1.BentoService": {"Call": {Class: Infer, Model: Path{1}}},

	// vLLM and SGLang serve one model per process and name none.
	"/vllm.grpc.engine.VllmEngine": {
		"HealthCheck":   {},
		"GetModelInfo":  {},
		"GetServerInfo": {},
		"Abort":         {Class: Update},
	},
	"/sglang.grpc.scheduler.SglangScheduler": {
		"HealthCheck":   {},
		"GetModelInfo":  {},
		"GetServerInfo": {},
		"GetLoads":      {},
		"Abort":         {Class: Update},
	},
})

// services holds what is known of all other methods of a service.
var services = map[string]Method{
	"/tensorflow.serving.PredictionService":      inferSpec,
	"/tensorflow.serving.ModelService":           {},
	"/nvidia.riva.tts.RivaSpeechSynthesis":       {Class: Infer},
	"/nvidia.riva.nlp.RivaLanguageUnderstanding": {Class: Infer},
	"/vllm.grpc.engine.VllmEngine":               {Class: Infer},
	"/sglang.grpc.scheduler.SglangScheduler":     {Class: Infer},
	"/grpc.health.v1.Health":                     {},
}

// table flattens methods by service and name into methods by full name.
func table(byService map[string]map[string]Method) map[string]Method {
	flat := map[string]Method{}
	for service, byName := range byService {
		for name, m := range byName {
			flat[service+"/"+name] = m
		}
	}
	return flat
}
