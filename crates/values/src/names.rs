//! What the mangled names of kernels have in them: every fragment that this crate looks for is here, and nowhere else.
//! `tests/phantom/test_names.py` holds each against the libraries that are installed. A fragment whose remark says where it is
//! found need not be in libtorch_cuda.so of the torch that we are tested with.
//!
//! In a mangled name the length stands before each identifier, `I` begins template arguments, and `E` ends what was begun.

/// Declares fragments, a line each.
macro_rules! fragments {
    ($($name:ident = $text:literal;)*) => {
        $(pub(crate) const $name: &[u8] = $text;)*
    };
}

fragments! {
    // Gradient scalers, losses and comparisons.
    VECTORIZED_ELEMENTWISE = b"29vectorized_elementwise_kernelI";
    UNFOLD_BACKWARD = b"35_unfold_backward_elementwise_kernelI";
    UNROLLED_ELEMENTWISE = b"27unrolled_elementwise_kernelI";
    COMPARE_SCALAR = b"21compare_scalar_kernelI";
    COMPARE = b"14CompareFunctorI";
    UPDATE_SCALE = b"28amp_update_scale_cuda_kernel";
    HALF_COPY = b"24float16_copy_kernel_cuda"; // Until torch 2.14.
    CONVERTING_COPY_TO_HALF = b"27converting_copy_kernel_cudaIfN3c104HalfE"; // Since torch 2.15.
    NLL_LOSS_BACKWARD = b"39nll_loss_backward_reduce_cuda_kernel_2dIflE";
    CTC_LOSS_BACKWARD = b"36ctc_loss_backward_collect_gpu_kernelIf";
    CTC_LOSS_BACKWARD_NONBLANK = b"45ctc_loss_backward_collect_nonblank_gpu_kernelIf";
    UNSCALE = b"non_finite_check_and_unscale_cuda_";
    MULTI_TENSOR_APPLY = b"25multi_tensor_apply_kernel";
    // Of `kernels/cat`.
    OPAQUE_TYPE_UNSIGNED = b"10OpaqueTypeILj";
    CAT = b"CatArrayBatchedCopy";
    CAT_VECTORIZED = b"CatArrayBatchedCopy_vectorizedI"; // Since torch 2.9.
    // Of `kernels/count`.
    NON_ZERO = b"9NonZeroOpI";
    LOAD_BOOL = b"10LoadBoolOp";
    DEVICE_REDUCE_SINGLE_TILE = b"28DeviceReduceSingleTileKernel";
    DEVICE_REDUCE = b"18DeviceReduceKernel";
    TRANSFORM_INPUT_ITERATOR = b"22TransformInputIteratorI"; // Before CUDA 13.
    DEVICE_UNIQUE_BY_KEY_SWEEP = b"28DeviceUniqueByKeySweepKernel";
    DEVICE_SELECT_SWEEP = b"23DeviceSelectSweepKernel";
    EQUAL_TO = b"8equal_toI";
    POLICY_HUB = b"10policy_hubI"; // Since CUDA 13.
    SELECT_POLICY = b"24device_select_policy_hubI"; // Before CUDA 13.
    DEVICE_REDUCE_BY_KEY = b"23DeviceReduceByKeyKernel";
    RUN_LENGTH_POLICY = b"3rle6encode10policy_hubIl"; // Since CUDA 13.
    RUN_LENGTH_POLICY_OF_12 = b"35device_run_length_encode_policy_hubIl"; // Before CUDA 13.
    UNIQUE_AGENT = b"8__unique11UniqueAgentI"; // Until torch 2.14.
    UNIQUE_DIM = b"24unique_dim_cuda_templateI";
    GATHER_KEEP_FROM_MASK = b"21gather_keep_from_maskE"; // In torchvision.
    GATHER_TOP_K = b"btopk10gatherTopKI";
    GATHER_KTH_VALUE = b"14gatherKthValueI";
    GATHER_MEDIAN = b"12gatherMedianI";
    C10_HALF = b"N3c104Half";
    C10_BRAIN = b"N3c108BFloat16";
    // Of `kernels/elementwise`.
    LOAD_WITH_CAST = b"12LoadWithCast";
    STRIDED_ELEMENTWISE = b"18elementwise_kernelI";
    CASTING_KERNEL_IMPL = b"15gpu_kernel_implI";
    BRAIN_COPY = b"25bfloat16_copy_kernel_cuda"; // Until torch 2.14.
    CONVERTING_COPY = b"27converting_copy_kernel_cudaI"; // Since torch 2.15.
    // Of `kernels/family`.
    REDUCE_KERNEL = b"13reduce_kernel";
    // Of `kernels/foreach`.
    FUSED_OPTIMIZER_LIST = b"32FusedOptimizerTensorListMetadataILi";
    TENSOR_LIST = b"18TensorListMetadataILi";
    SCALAR_LIST_FLOAT = b"28TensorListScalarListMetadataIfLi";
    SCALAR_LIST_DOUBLE = b"28TensorListScalarListMetadataIdLi";
    COPY = b"NS0_4CopyI";
    // Of `kernels/functors`.
    FILL = b"11FillFunctorI";
    ABS = b"10AbsFunctorI";
    ADD_ON_OTHER = b"22CUDAFunctorOnOther_addI";
    ADD_ON_SELF = b"21CUDAFunctorOnSelf_addI";
    ADD = b"15CUDAFunctor_addI";
    CLAMP_SCALAR = b"19launch_clamp_scalarE";
    POW_TENSOR_SCALAR = b"29pow_tensor_scalar_kernel_implI";
    BITWISE_NOT = b"bitwise_not_kernel_cuda";
    FLOOR = b"17floor_kernel_cuda";
    CEIL = b"16ceil_kernel_cuda";
    TRUNC = b"17trunc_kernel_cuda";
    SQRT = b"16sqrt_kernel_cuda";
    RECIPROCAL = b"22reciprocal_kernel_cuda";
    LOGICAL_NOT = b"logical_not_kernel_cuda";
    DIRECT_COPY = b"23direct_copy_kernel_cuda";
    NEG = b"15neg_kernel_cuda";
    ROUND = b"17round_kernel_cuda";
    SIGN = b"16sign_kernel_cuda";
    EXP = b"15exp_kernel_cuda";
    EXPM1 = b"17expm1_kernel_cuda";
    LOG = b"15log_kernel_cuda";
    LOG2 = b"16log2_kernel_cuda";
    LOG10 = b"17log10_kernel_cuda";
    LOG1P = b"17log1p_kernel_cuda";
    SIN = b"15sin_kernel_cuda";
    COS = b"15cos_kernel_cuda";
    TANH = b"16tanh_kernel_cuda";
    SIGMOID = b"19sigmoid_kernel_cuda";
    RSQRT = b"17rsqrt_kernel_cuda";
    WHERE = b"17where_kernel_impl";
    MASKED_FILL = b"18masked_fill_kernel";
    BINARY_FUNCTOR = b"13BinaryFunctorI";
    SCALAR_FIRST_FUNCTOR = b"13AUnaryFunctorI";
    SCALAR_LAST_FUNCTOR = b"13BUnaryFunctorI";
    BITWISE_AND = b"17BitwiseAndFunctor";
    BITWISE_OR = b"16BitwiseOrFunctor";
    BITWISE_XOR = b"17BitwiseXorFunctor";
    MUL = b"10MulFunctor";
    COMPARE_EQ = b"16CompareEqFunctorI";
    LOGICAL_AND = b"23logical_and_kernel_cuda";
    LOGICAL_OR = b"22logical_or_kernel_cuda";
    MINIMUM = b"19minimum_kernel_cuda";
    MAXIMUM = b"19maximum_kernel_cuda";
    DIV_FLOOR = b"21div_floor_kernel_cuda";
    DIV_TRUNC = b"21div_trunc_kernel_cuda";
    DIV = b"10DivFunctor";
    REMAINDER = b"21remainder_kernel_cuda";
    FMOD = b"16fmod_kernel_cuda";
    LOGICAL_XOR = b"23logical_xor_kernel_cuda";
    LSHIFT = b"18lshift_kernel_cuda";
    RSHIFT = b"18rshift_kernel_cuda";
    // Of `kernels/histogram`.
    HISTOGRAM = b"17kernelHistogram1DI";
    HISTOGRAM_OF = b"21CUDA_tensor_histogramI";
    // Of `kernels/index`.
    VECTORIZED_GATHER = b"24vectorized_gather_kernelILi16ElE";
    TAKE_PUT = b"20cuda_take_put_kernelI";
    TAKE = b"11take_kernelE";
    INDEX_ELEMENTWISE = b"24index_elementwise_kernel";
    INDEX = b"17index_kernel_impl";
    INDEXING_BACKWARD = b"indexing_backward_kernel";
    OPAQUE_TYPE = b"10OpaqueTypeILi";
    INDEX_PUT = b"21index_put_kernel_impl";
    INDEX_COPY = b"22index_copy_kernel_impl";
    INDEX_FILL = b"22index_fill_kernel_impl";
    FLIP = b"16flip_kernel_impl";
    INDEX_SELECT_SMALL = b"21indexSelectSmallIndexI";
    // Of `kernels/multinomial`.
    SAMPLE_WITH_REPLACEMENT = b"32sampleMultinomialWithReplacementI";
    // Of `kernels/nonzero`.
    COUNTING_ITERATOR_LONG = b"17counting_iteratorIl";
    COUNTING_INPUT_ITERATOR_LONG = b"21CountingInputIteratorIl"; // Before CUDA 13.
    WRITE_INDICES = b"13write_indicesIl";
    // Of `kernels/pooling`.
    MAX_POOL = b"21max_pool_forward_nchwI";
    AVG_POOL = b"25avg_pool2d_out_cuda_frameI";
    ADAPTIVE_MAX_POOL = b"15adaptivemaxpoolI";
    ADAPTIVE_AVERAGE_POOL = b"21adaptive_average_poolI";
    ROLL = b"16roll_cuda_kernelI";
    NEAREST_EXACT = b"nearest_neighbor_exact_compute_source_index";
    UPSAMPLE_NEAREST_1D = b"28upsample_nearest1d_out_frameI";
    UPSAMPLE_NEAREST_2D = b"28upsample_nearest2d_out_frameI";
    // Of `kernels/random`.
    BERNOULLI_TENSOR = b"28bernoulli_tensor_cuda_kernelI";
    POINTWISE_APPLY_2 = b"21kernelPointwiseApply2I";
    IGAMMA = b"10CalcIgammaI";
    DISTRIBUTION = b"43distribution_elementwise_grid_stride_kernelI";
    FIRST_LAMBDA_AND_PHILOX_STATE = b"E_EEvlNS_15PhiloxCudaState";
    DISTRIBUTION_NULLARY = b"27distribution_nullary_kernelI";
    AND_TRANSFORM = b"_and_transformI";
    UNIFORM = b"14uniform_kernelI";
    NORMAL = b"13normal_kernelI";
    FLOAT4 = b"6float4";
    BERNOULLI = b"16bernoulli_kernelI";
    RANDOM_FROM_TO = b"21random_from_to_kernelI";
    // Of `kernels/range`.
    WITH_INDEX = b"29elementwise_kernel_with_indexI";
    LINSPACE = b"17linspace_cuda_out";
    ARANGE = b"15arange_cuda_out";
    REVERSE_INDICES = b"27fill_reverse_indices_kernelEPli";
    FLATTEN_INDICES = b"21_flatten_indices_implI";
    OF_LONGS_AND_UP_TO_EIGHT = b"18CUDAKernelLauncherElLl8EE";
    REPEAT_INTERLEAVE = b"_Z19compute_cuda_kernelI";
    // Of `kernels/reduce`.
    ARG_MAX_OPS = b"9ArgMaxOpsI";
    ARG_MIN_OPS = b"9ArgMinOpsI";
    MAX_OPS = b"6MaxOpsI";
    MIN_OPS = b"6MinOpsI";
    AND = b"15and_kernel_cuda";
    OR = b"14or_kernel_cuda";
    INTO_BOOL = b"clEvEUlb";
    MAX_NAN = b"MaxNanFunctor";
    MIN_NAN = b"MinNanFunctor";
    SUM_FUNCTOR = b"11sum_functor";
    PROD_FUNCTOR = b"12prod_functor";
    MEAN_FLOAT = b"7MeanOpsIffffE";
    MEAN_DOUBLE = b"7MeanOpsIddddE";
    REDUCE_OP_HALF = b"8ReduceOpIN3c104HalfE";
    REDUCE_OP_BRAIN = b"8ReduceOpIN3c108BFloat16E";
    REDUCE_OP = b"8ReduceOpI";
    // Of `kernels/scan`.
    SCAN_OUTER_DIM = b"28tensor_kernel_scan_outer_dimI";
    SCAN_INNERMOST_DIM = b"32tensor_kernel_scan_innermost_dimI";
    DEVICE_SCAN = b"16DeviceScanKernel";
    NULL_TYPE = b"8NullTypeE";
    PLUS = b"4plusI";
    MULTIPLIES = b"10multipliesI";
    // Of `kernels/scatter`.
    MASKED_SCATTER = b"masked_scatter";
    MASKED_SCATTER_CHECK = b"masked_scatter_size_check";
    INDEX_FUNC_SMALL = b"19indexFuncSmallIndexI";
    INDEX_FUNC_LARGE = b"19indexFuncLargeIndexI";
    SCATTER_ADD = b"9ReduceAddE";
    SCATTER_GATHER = b"_scatter_gather_elementwise_kernelI";
    SCATTER_ASSIGN = b"12TensorAssign";
    SCATTER_FILL_INTERNAL = b"_cuda_scatter_fill_internal_kernelI";
    GATHER_INTERNAL = b"_cuda_scatter_gather_internal_kernelILb0E";
    SCATTER_INTERNAL = b"_cuda_scatter_gather_internal_kernelILb1E";
    SCATTER_MAXIMUM = b"13ReduceMaximumE";
    SCATTER_MINIMUM = b"13ReduceMinimumE";
    SCATTER_MULTIPLY = b"14ReduceMultiplyE";
    // Of `kernels/search`.
    SEARCHSORTED = b"24searchsorted_cuda_kernelI";
    // Of `kernels/softmax`.
    SOFTMAX_WARP = b"20softmax_warp_forwardI";
    SOFTMAX_IN_REGISTERS = b"22cunn_SoftMaxForwardRegI";
    SOFTMAX_SHARED = b"23cunn_SoftMaxForwardSmemILi";
    SOFTMAX = b"19cunn_SoftMaxForwardILi";
    LOG_SOFTMAX = b"25LogSoftMaxForwardEpilogue";
    // Of `kernels/sort`.
    RADIX_SORT_POLICY = b"21DeviceRadixSortPolicyI"; // Before CUDA 13.
    DESCENDING = b"9SortOrderE1E"; // Since CUDA 13.
    DESCENDING_FLAG = b"9Policy900ELb1E"; // Before CUDA 13.
    DEVICE_RADIX_SORT_SINGLE_TILE = b"31DeviceRadixSortSingleTileKernel";
    DEVICE_RADIX_SORT_ONESWEEP = b"29DeviceRadixSortOnesweepKernel";
    RADIX_SORT_IN_PLACE = b"18radixSortKVInPlaceI";
    BITONIC_SORT_IN_PLACE = b"20bitonicSortKVInPlaceI";
    WARP_MERGE_SORT_IN_PLACE = b"22warpMergeSortKVInPlaceI"; // Since torch 2.15.
    MERGE_SORT_OF_BLOCKS = b"30DeviceMergeSortBlockSortKernel";
    LESS_THAN = b"2at6native4LTOpI";
    GREATER_THAN = b"4GTOpI";
    HELPER_OF_CUB = b"11VSMemHelperE"; // Since torch 2.15.
    COUNTED_IN_32_BITS = b"NS0_13ScanTileStateIjLb1EEE";
    NULL_TYPE_OF_CUB = b"NS0_8NullTypeE";
    // Of `kernels/step_count`.
    BINARY_OP_SCALAR = b"21BinaryOpScalarFunctorI";
    TENSOR_LIST_OF_ONE = b"18TensorListMetadataILi1E";
    STD_PLUS = b"St4plusI";
    // Of `kernels/triangle`.
    TRIU_TRIL = b"16triu_tril_kernelI";
    // Of `kernels/unique`.
    UNIQUE_CUB_FILE = b"12_UniqueCub_cu";
    ADJACENT_DIFFERENCE = b"26adjacent_difference_kernelIPK";
    UNIQUE_SCATTER = b"14scatter_kernelElPKl";
    // What a program asks.
    COMPARE_EQ_LONG = b"16CompareEqFunctorIlE";
    ANY_UNARY_FUNCTOR = b"UnaryFunctorI";
    LOAD_WITHOUT_CAST = b"15LoadWithoutCast";
    BITWISE_AND_BOOL = b"17BitwiseAndFunctorIbE";
    // What the driver takes for a kernel.
    INDEX_SELECT = b"indexSelect";
    INDEX_FUNC = b"9indexFunc";
    EMBEDDING = b"mbedding";
    NLL_LOSS = b"nll_loss";
    ANY_GATHER = b"gather";
    ANY_SCATTER = b"scatter";
    ROWWISE_MOMENTS = b"RowwiseMoments";
    LAYER_NORM = b"layer_norm_kernel";
    // Types.
    HALF = b"4HalfE";
    BRAIN = b"8BFloat16E";
}

/// Where `part` begins in a name.
pub(crate) fn position(name: &[u8], part: &[u8]) -> Option<usize> {
    name.windows(part.len()).position(|it| it == part)
}

/// Which of several is there: a library's other releases call the same otherwise.
pub(crate) fn one_of(name: &[u8], parts: &[&'static [u8]]) -> Option<&'static [u8]> {
    parts.iter().copied().find(|it| has(name, it))
}

/// How many bytes into CUB's or Thrust's iterator over a function of elements their address stands.
pub(crate) fn address_within(name: &[u8]) -> usize {
    // CUB's own, before CUDA 13, begins with the function; Thrust's with the address.
    if has(name, TRANSFORM_INPUT_ITERATOR) { 8 } else { 0 }
}

/// Whether it is there.
pub(crate) fn has(name: &[u8], part: &[u8]) -> bool {
    position(name, part).is_some()
}
