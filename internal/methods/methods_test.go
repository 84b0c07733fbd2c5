package methods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table row by row: class, path of the model, of its version, and whether the stream waits for its first message.
func TestLookup(t *testing.T) {
	const oip, ts = "/inference.GRPCInferenceService/", "/org.pytorch.serve.grpc."
	rows := []struct {
		method                 string
		class                  Class
		model, version, number string
		streaming              bool
	}{
		{oip + "ModelInfer", Infer, "1", "2", "", false},
		{oip + "ModelStreamInfer", Infer, "1", "2", "", true},
		{oip + "ModelReady", Other, "1", "2", "", false},
		{oip + "ModelMetadata", Other, "1", "2", "", false},
		{oip + "ModelConfig", Other, "1", "2", "", false},
		{oip + "ModelStatistics", Other, "1", "2", "", false},
		{oip + "ServerLive", Other, "", "", "", false},
		{oip + "ServerReady", Other, "", "", "", false},
		{oip + "ServerMetadata", Other, "", "", "", false},
		{oip + "RepositoryIndex", Other, "", "", "", false},
		{oip + "RepositoryModelLoad", Update, "2", "", "", false},
		{oip + "RepositoryModelUnload", Update, "2", "", "", false},
		{oip + "SystemSharedMemoryStatus", Update, "", "", "", false},
		{oip + "SystemSharedMemoryRegister", Update, "", "", "", false},
		{oip + "SystemSharedMemoryUnregister", Update, "", "", "", false},
		{oip + "CudaSharedMemoryStatus", Update, "", "", "", false},
		{oip + "CudaSharedMemoryRegister", Update, "", "", "", false},
		{oip + "CudaSharedMemoryUnregister", Update, "", "", "", false},
		{oip + "TraceSetting", Update, "2", "", "", false},
		{oip + "LogSettings", Update, "", "", "", false},

		{"/inference.model_repository.ModelRepositoryService/RepositoryIndex", Other, "", "", "", false},
		{"/inference.model_repository.ModelRepositoryService/RepositoryModelLoad", Update, "2", "", "", false},
		{"/inference.model_repository.ModelRepositoryService/RepositoryModelUnload", Update, "2", "", "", false},

		{ts + "openinference.GRPCInferenceService/ModelInfer", Infer, "1", "2", "", false},
		{ts + "inference.InferenceAPIsService/Ping", Other, "", "", "", false},
		{ts + "inference.InferenceAPIsService/Predictions", Infer, "1", "2", "", false},
		{ts + "inference.InferenceAPIsService/StreamPredictions", Infer, "1", "2", "", true},
		{ts + "inference.InferenceAPIsService/StreamPredictions2", Infer, "1", "2", "", true},
		{ts + "management.ManagementAPIsService/DescribeModel", Other, "1", "2", "", false},
		{ts + "management.ManagementAPIsService/ListModels", Other, "", "", "", false},
		{ts + "management.ManagementAPIsService/RegisterModel", Update, "5", "", "", false},
		{ts + "management.ManagementAPIsService/ScaleWorker", Update, "1", "2", "", false},
		{ts + "management.ManagementAPIsService/SetDefault", Update, "1", "2", "", false},
		{ts + "management.ManagementAPIsService/UnregisterModel", Update, "1", "2", "", false},

		{"/tensorflow.serving.PredictionService/Predict", Infer, "1.1", "1.4", "1.2.1", false},
		{"/tensorflow.serving.PredictionService/Classify", Infer, "1.1", "1.4", "1.2.1", false},
		{"/tensorflow.serving.PredictionService/Regress", Infer, "1.1", "1.4", "1.2.1", false},
		{"/tensorflow.serving.PredictionService/MultiInference", Infer, "1.1.1", "1.1.4", "1.1.2.1", false},
		{"/tensorflow.serving.PredictionService/GetModelMetadata", Other, "1.1", "1.4", "1.2.1", false},
		{"/tensorflow.serving.SessionService/SessionRun", Infer, "1.1", "1.4", "1.2.1", false},
		{"/tensorflow.serving.ModelService/GetModelStatus", Other, "1.1", "1.4", "1.2.1", false},
		{"/tensorflow.serving.ModelService/HandleReloadConfigRequest", Update, "", "", "", false},
		{"/tensorflow.serving.ModelService/ListModelNames", Other, "", "", "", false},

		{"/fmaas.GenerationService/Generate", Infer, "1", "", "", false},
		{"/fmaas.GenerationService/GenerateStream", Infer, "1", "", "", true},
		{"/fmaas.GenerationService/Tokenize", Infer, "1", "", "", false},
		{"/fmaas.GenerationService/ModelInfo", Other, "1", "", "", false},

		{"/nvidia.riva.asr.RivaSpeechRecognition/Recognize", Infer, "1.13", "", "", false},
		{"/nvidia.riva.asr.RivaSpeechRecognition/StreamingRecognize", Infer, "1.1.13", "", "", true},
		{"/nvidia.riva.asr.RivaSpeechRecognition/GetRivaSpeechRecognitionConfig", Other, "1", "", "", false},
		{"/nvidia.riva.tts.RivaSpeechSynthesis/Synthesize", Infer, "", "", "", false},
		{"/nvidia.riva.tts.RivaSpeechSynthesis/SynthesizeOnline", Infer, "", "", "", false},
		{"/nvidia.riva.tts.RivaSpeechSynthesis/GetRivaSynthesisConfig", Other, "1", "", "", false},
		{"/nvidia.riva.nlp.RivaLanguageUnderstanding/ClassifyText", Infer, "3.1", "", "", false},
		{"/nvidia.riva.nlp.RivaLanguageUnderstanding/ClassifyTokens", Infer, "4.1", "", "", false},
		{"/nvidia.riva.nlp.RivaLanguageUnderstanding/AnalyzeIntent", Infer, "", "", "", false},
		{"/nvidia.riva.nmt.RivaTranslation/TranslateText", Infer, "2", "", "", false},
		{"/nvidia.riva.nmt.RivaTranslation/StreamingTranslateSpeechToText", Infer, "1.2.3", "", "", true},
		{"/nvidia.riva.nmt.RivaTranslation/StreamingTranslateSpeechToSpeech", Infer, "1.3.3", "", "", true},

		{"/mmesh.ModelMesh/registerModel", Update, "1", "", "", false},
		{"/mmesh.ModelMesh/unregisterModel", Update, "1", "", "", false},
		{"/mmesh.ModelMesh/ensureLoaded", Update, "1", "", "", false},
		{"/mmesh.ModelMesh/getModelStatus", Other, "1", "", "", false},
		{"/mmesh.ModelMesh/setVModel", Update, "2", "", "", false},
		{"/mmesh.ModelMesh/deleteVModel", Update, "", "", "", false},
		{"/mmesh.ModelMesh/getVModelStatus", Other, "", "", "", false},

		{"/bentoml.grpc.v1.BentoService/Call", Infer, "1", "", "", false},
		{"/vllm.grpc.engine.VllmEngine/Generate", Infer, "", "", "", false},
		{"/vllm.grpc.engine.VllmEngine/HealthCheck", Other, "", "", "", false},
		{"/sglang.grpc.scheduler.SglangScheduler/Generate", Infer, "", "", "", false},
		{"/grpc.health.v1.Health/Check", Other, "", "", "", false},
		{"/grpc.health.v1.Health/Watch", Other, "", "", "", false},
	}
	for _, r := range rows {
		m, ok := Lookup(r.method)
		require.True(t, ok, r.method)
		assert.Equal(t, r.class, m.Class, r.method)
		assert.Equal(t, r.model, m.Model.String(), r.method)
		assert.Equal(t, r.version, m.Version.String(), r.method)
		assert.Equal(t, r.number, m.VersionNumber.String(), r.method)
		assert.Equal(t, r.streaming, m.Streaming, r.method)
		assert.Equal(t, strings.HasSuffix(r.method, "/ModelStreamInfer"), m.Answers, r.method)
	}
}

func TestLookupUnknown(t *testing.T) {
	for _, method := range []string{
		"", "/", "ModelInfer", "/my.Service/Method", "/inference.GRPCInferenceService/NewMethod",
		"inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService",
	} {
		m, ok := Lookup(method)
		assert.False(t, ok, method)
		assert.Equal(t, Method{}, m, method)
	}
}

func TestTableIsConsistent(t *testing.T) {
	for method, m := range known {
		assert.Len(t, strings.Split(method, "/"), 3, method)
		assert.True(t, strings.HasPrefix(method, "/"), method)
		if m.Streaming || m.Version != nil || m.VersionNumber != nil {
			assert.NotNil(t, m.Model, "%s: waits for a name, or has a version, but no name", method)
		}
	}
	for service, m := range services {
		assert.Len(t, strings.Split(service, "/"), 2, service)
		assert.False(t, m.Streaming, "%s: whether a method streams cannot be said of all methods", service)
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	for _, method := range []string{
		"/inference.GRPCInferenceService/ModelInfer", "/tensorflow.serving.PredictionService/Predict", "/some.other.Service/Method",
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { Lookup(method) }), method)
	}
}

func TestClassString(t *testing.T) {
	assert.Equal(t, "infer update other", strings.Join([]string{Infer.String(), Update.String(), Other.String()}, " "))
	assert.Equal(t, Other, Method{}.Class)
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Lookup("/inference.GRPCInferenceService/ModelInfer")
	}
}
